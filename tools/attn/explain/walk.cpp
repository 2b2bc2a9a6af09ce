#include "explain/walk.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>

#include "attn/error.hpp"
#include "attn/module_kinds.hpp"
#include "attn/steps.hpp"
#include "common/arithmetic.hpp"
#include "common/format.hpp"
#include "report/figure/text.hpp"
#include "report/html/blocks.hpp"

namespace attn::tool {
namespace {

constexpr std::int64_t kMostRows = 10, kMostComponents = 4;
constexpr std::size_t kMostWeights = 8;

std::string label_of(const std::vector<std::string>& tokens, std::int64_t token) {
  return tokens.empty() ? "" : figure::shortened(tokens[static_cast<std::size_t>(token)], kLongestLabel);
}

// The line with the word at its end, which is cut where the two would take more than 80 columns.
std::string labelled_line(std::string line, const std::string& word) {
  const std::size_t taken = width_of(line) + 2, room = kColumns - std::min(taken, kColumns);
  const std::string shown = figure::shortened(word, room);
  return shown.empty() ? line : line.append("  ").append(shown);
}

std::int64_t checked(const char* flag, std::int64_t value, std::int64_t count, const char* what) {
  if (value >= 1 && value <= count) return value - 1;
  throw Error(Error::Kind::argument, flag, formatted("1 to {}, the number of {}", count, what), std::to_string(value));
}

// The places of a vector's numbers that are written out: all, or the first two and the last.
std::vector<std::int64_t> shown_components(std::int64_t size) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(std::min(size, kMostComponents)));
  std::iota(places.begin(), places.end(), std::int64_t{0});
  return size <= kMostComponents ? places : std::vector<std::int64_t>{0, 1, size - 1};
}

}  // namespace

Walk::Walk(const Walked& walked, const Trace& steps, const WalkOptions& options, const Style& style)
    : walked_(walked), steps_(steps), style_(style), batched_(walked.x.rank() == 3) {
  if (walked.x.numel() == 0 || (walked.context.defined() && walked.context.numel() == 0)) {
    throw Error(Error::Kind::shape, "explain", "inputs that are not empty", walked.x.shape().str());
  }
  heads_ = module_kind(walked.module).uses.heads ? walked.config.num_heads : 1;
  const std::int64_t tokens = walked.x.size(-2);
  query_ = checked("--query", options.query.value_or(std::min<std::int64_t>(tokens, 2)), tokens, "tokens");
  head_ = checked("--head", options.head, heads_, "heads");
  keys_ = walked.context.defined() ? walked.context.size(-2) : tokens;
  if (options.key) key_ = checked("--key", *options.key, keys_, "keys");
}

// ---- the recorded numbers -------------------------------------------------------------

bool Walk::has(std::string_view step) const {
  return steps_.contains(step) || steps_.contains(formatted("heads.{}.{}", head_, step));
}

Tensor Walk::matrix(std::string_view step) const {
  const std::string of_head = formatted("heads.{}.{}", head_, step);
  Tensor tensor = steps_[steps_.contains(of_head) ? of_head : step];
  if (batched_ && tensor.rank() > 2) tensor = tensor.select(0, 0);
  return tensor.rank() > 2 ? tensor.select(0, head_) : tensor;
}

Tensor Walk::keep() const { return report_page::arrange(steps_, 0).blocks.front().keep_in_any_head(); }

Walk::Row Walk::row(std::string_view step, std::int64_t i) const { return values_of(matrix(step).select(0, i)); }

Tensor Walk::parameter(std::string_view name) const {
  const StateDict& state = walked_.parameters;
  const std::string prefix = walked_.module == "heads" ? formatted("heads.{}.", head_) : "";
  const auto found = state.find(prefix + std::string(name));
  return found == state.end() ? Tensor{} : found->second;
}

std::vector<std::int64_t> Walk::shown(std::int64_t count, std::int64_t always, std::int64_t key) const {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) {
    if (count <= kMostRows || i < kMostRows - 4 || i >= count - 2 || i == always || i == key) indices.push_back(i);
  }
  return indices;
}

std::vector<std::int64_t> Walk::by_weight() const {
  const Row weights = row(final_weights(), query_);
  std::vector<std::int64_t> keys(weights.size());
  std::iota(keys.begin(), keys.end(), std::int64_t{0});
  std::ranges::stable_sort(keys, std::ranges::greater{}, [&](std::int64_t j) {
    const double weight = weights[static_cast<std::size_t>(j)];
    return std::isnan(weight) ? std::numeric_limits<double>::infinity() : weight;
  });
  return keys;
}

std::vector<std::int64_t> Walk::shown_keys() const {
  if (keys_ <= kMostRows) return shown(keys_, query_);
  std::vector<std::int64_t> keys = by_weight();
  keys.resize(kMostWeights);
  for (const std::int64_t own : {query_, key_}) {
    if (own >= 0 && own < keys_ && std::ranges::find(keys, own) == keys.end()) keys.push_back(own);
  }
  std::ranges::sort(keys);
  return keys;
}

std::string Walk::label(std::int64_t token) const { return label_of(walked_.tokens, token); }

std::string Walk::key_label(std::int64_t key) const { return label_of(walked_.context_tokens, key); }

// ---- one section each -----------------------------------------------------------------

std::string Walk::each_line(const std::vector<std::int64_t>& indices,
                            const std::function<std::string(std::int64_t)>& line_of) {
  std::string text;
  std::int64_t previous = -1;
  for (const std::int64_t i : indices) {
    if (i > previous + 1) text.append("  …\n");
    text.append(line_of(i));
    while (text.ends_with(' ')) text.pop_back();
    if (!text.ends_with('\n')) text.append("\n");
    previous = i;
  }
  return text;
}

std::string Walk::heading(std::string_view title) {
  return "\n" + style_.heading(formatted("{}. {}", ++section_, title)) + "\n";
}

std::string Walk::intro() const {
  const std::string word = label(query_).empty() ? "" : formatted(" \"{}\"", label(query_));
  std::string text = style_.strong(formatted("{}: what query {}{} attends to", walked_.module, query_ + 1, word));
  if (heads_ > 1) text.append(formatted(", in head {} of {}", head_ + 1, heads_));
  text.append(formatted("\nInput: {}, {}", walked_.name, walked_.x.shape().str()));
  if (batched_) text.append("; the first of the batch is shown");
  if (walked_.context.defined()) {
    text.append(formatted("\nContext: {}, {}", walked_.context_name, walked_.context.shape().str()));
  }
  if (walked_.seed) text.append(formatted("\nSeed {}", *walked_.seed));
  return text + "\n";
}

std::string Walk::rows(std::string_view letter, std::string_view step) const {
  const Tensor all = matrix(step);
  const bool of_keys = step != "inputs";
  const std::int64_t key = of_keys || !walked_.context.defined() ? key_ : -1;
  return each_line(shown(all.size(0), query_, key), [&](std::int64_t i) {
    const std::string name = of_keys ? key_label(i) : label(i);
    return labelled_line(formatted("  {}_{} = {}", letter, i + 1, vector_text(values_of(all.select(0, i)))), name);
  });
}

std::string Walk::inputs() {
  std::string text = heading("Inputs, one row for each token") + rows("x", "inputs");
  if (steps_.contains("source")) text.append("the source of keys and values\n" + rows("y", "source"));
  return text;
}

std::string Walk::projection(std::string_view letter, std::string_view step) const {
  const std::string name = formatted("W_{}", letter);
  const Tensor v1 = parameter(name);  // (d_in, d_out); Linear's weights are (d_out, d_in)
  const Tensor weight = v1.defined() ? v1.transpose(0, 1) : parameter(name + ".weight");
  const Tensor bias = parameter(name + ".bias");
  const Row x = row("inputs", query_), result = row(step, query_);
  const std::int64_t first = walked_.module == "heads" ? 0 : head_ * std::ssize(result);  // the head's slice of d_out
  std::string text = formatted("{}_{} = x_{} · {} = {}\n", letter, query_ + 1, query_ + 1, name, vector_text(result));
  return text + components(letter, x, weight, bias, first, result);
}

std::string Walk::components(std::string_view letter, const Row& x, const Tensor& weight, const Tensor& bias,
                             std::int64_t first, const Row& result) const {
  return each_line(shown_components(std::ssize(result)), [&](std::int64_t c) {
    const auto b = bias.defined() ? std::optional(bias.at({first + c})) : std::nullopt;
    return dot_line(formatted("  {}_{}[{}]", letter, query_ + 1, c + 1), x, values_of(weight.select(0, first + c)), b,
                    result[static_cast<std::size_t>(c)]);
  });
}

std::string Walk::projections() {
  std::string text = heading("Projection: the query of this token, keys and values of all");
  text.append(projection("query", "queries"));
  if (steps_.contains("source")) {
    text.append("keys and values are the source's rows, times W_key and W_value\n");
  } else {
    text.append(projection("key", "keys") + projection("value", "values"));
  }
  return text.append("all keys\n" + rows("key", "keys") + "all values\n" + rows("value", "values"));
}

std::string Walk::turned(std::string_view letter, std::string_view step, std::string_view rotated) const {
  const RotaryFrequencies rope = walked_.config.rope.value();
  const Row from = row(step, query_), to = row(rotated, query_);
  const std::size_t half = rope.inv_freq.size();
  const auto plain = static_cast<std::size_t>(walked_.config.latents.plain);  // what stands before them does not turn
  const std::string before = formatted("{}_{} = {}", letter, query_ + 1, vector_text(from));
  std::string text = wrapped({before, "becomes " + vector_text(to)}, kColumns, 2) + "\n";
  const bool apart = rope.layout == RotaryLayout::halves;  // the numbers of a pair
  return text + each_line(shown_components(std::ssize(rope.inv_freq)), [&](std::int64_t place) {
           const auto i = static_cast<std::size_t>(place);
           const double angle = static_cast<double>(query_) * static_cast<double>(rope.inv_freq[i]);
           const std::string c = formatted("cos({})", number_text(angle)), s = formatted("sin({})", number_text(angle));
           const std::size_t k = plain + (apart ? i : 2 * i), other = k + (apart ? half : 1);
           const std::string a = operand_text(from[k]), b = operand_text(from[other]);
           return formatted("  numbers {} and {} turn by {} · {} = {} rad, {:.1f}°\n", k + 1, other + 1, query_,
                            number_text(static_cast<double>(rope.inv_freq[i])), number_text(angle),
                            angle * 180 / std::numbers::pi) +
                  formatted("    {}·{} - {}·{} = {}\n", a, c, b, s, number_text(to[k])) +
                  formatted("    {}·{} + {}·{} = {}\n", b, c, a, s, number_text(to[other]));
         });
}

std::string Walk::rotation() {
  if (!has("rotated queries")) return {};
  return heading(formatted("Rotation: token {} stands at position {}, counted from 0", query_ + 1, query_)) +
         turned("query", "queries", "rotated queries") + turned("key", "keys", "rotated keys") + "all rotated keys\n" +
         rows("key", "rotated keys");
}

std::string Walk::scores() {
  const bool projected = has("queries"), rotated = has("rotated queries");
  const std::string q = projected ? "query" : "x", k = projected ? "key" : "x";
  const std::string of_query = rotated ? "rotated queries" : projected ? "queries" : "inputs";
  const std::string of_key = rotated ? "rotated keys" : projected ? "keys" : "inputs";
  const Row query = row(of_query, query_), totals = row("scores", query_);
  std::string text = heading(formatted("Scores: {}_{} · every {}", q, query_ + 1, projected ? "key" : "input"));
  return text + each_line(shown_keys(), [&](std::int64_t j) {
           return dot_line(formatted("  {}_{} · {}_{}", q, query_ + 1, k, j + 1), query, row(of_key, j), std::nullopt,
                           totals[static_cast<std::size_t>(j)], key_label(j));
         });
}

std::string Walk::scaling() {
  if (!has("scaled")) return {};
  const Row from = row("scores", query_), to = row("scaled", query_);
  const auto d = matrix("keys").size(-1);
  const bool own = !walked_.config.scale && walked_.module != "head";
  const double factor = own ? 1 / std::sqrt(static_cast<double>(d)) : walked_.config.scale.value_or(1);
  if (factor == 1) return heading(own ? "Scaling: scores / √1, they stay as they are" : "Scaling: none");
  const std::string how = own ? formatted("/ √{}", d) : "· " + operand_text(factor);
  std::string text = heading(own ? formatted("Scaling: scores / √{}, the size of a key", d)
                                 : formatted("Scaling: scores · {}", operand_text(factor)));
  return text + each_line(shown_keys(), [&](std::int64_t j) {
           const auto i = static_cast<std::size_t>(j);
           return formatted("  {} {} = {}", operand_text(from[i]), how, number_text(to[i]));
         });
}

std::string Walk::masking() {
  if (!has("masked")) return {};
  std::string text = heading("Causal mask: later tokens are hidden, their scores become -inf");
  const std::int64_t hidden = keys_ - query_ - 1;
  if (hidden <= 0) return text + "  query " + std::to_string(query_ + 1) + " is the last: nothing to hide\n";
  return text + formatted("  hidden: {} of {} keys, from key {} on\n  {}\n", hidden, keys_, query_ + 2,
                          vector_text(row("masked", query_)));
}

std::string Walk::softmax() {
  const std::string_view step = softmax_input([this](std::string_view name) { return has(name); });
  const Row from = row(step, query_), weights = row("weights", query_);
  const double largest = *std::max_element(from.begin(), from.end());
  double sum = 0;
  for (const double s : from) sum += std::exp(s - largest);
  std::string text = heading("Softmax: exp(score - largest) / their sum");
  text.append(formatted("  largest = {}, sum of exps = {}\n", number_text(largest), number_text(sum)));
  return text + each_line(shown_keys(), [&](std::int64_t j) {
           const auto i = static_cast<std::size_t>(j);
           return labelled_line(
               formatted("  exp({} - {}) / {} = {} / {} = {}", operand_text(from[i]), operand_text(largest),
                         number_text(sum), number_text(std::exp(from[i] - largest)), number_text(sum),
                         number_text(weights[i])),
               key_label(j));
         });
}

std::string Walk::dropout() {
  if (!has("dropped")) return {};
  const double p = walked_.config.dropout;
  const Row from = row("weights", query_), to = row("dropped", query_);
  std::string text = heading(formatted("Dropout: each weight dropped with chance {}, kept ones times {}", p,
                                       number_text(p < 1 ? 1 / (1 - p) : 0)));
  return text + each_line(shown_keys(), [&](std::int64_t j) {
           const auto i = static_cast<std::size_t>(j);
           const bool dropped = to[i] == 0 && from[i] != 0;
           return formatted("  {} → {}{}", number_text(from[i]), number_text(to[i]), dropped ? "  dropped" : "");
         });
}

std::string Walk::context() {
  const Row weights = row(final_weights(), query_);
  const char* const values = has("values") ? "values" : "inputs";
  const bool all = keys_ <= kMostRows;
  const std::vector<std::int64_t> keys = all ? shown(keys_, query_) : by_weight();
  std::string text = heading(all ? "Context: the values, summed by weight"
                                 : "Context: the values, summed by weight, the largest weights first");
  Row rest;
  double weight_of_rest = 0;
  std::size_t in_rest = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::int64_t j = keys[i];
    const double weight = weights[static_cast<std::size_t>(j)];
    const Row value = row(values, j);
    if (all || i < kMostWeights || j == key_) {
      text.append(labelled_line(formatted("  {} {} · {}", i == 0 ? " " : "+", number_text(weight), vector_text(value)),
                                key_label(j)));
      text.append("\n");
      continue;
    }
    rest.resize(value.size());
    weight_of_rest += weight, ++in_rest;
    for (std::size_t c = 0; c < value.size(); ++c) rest[c] += weight * value[c];
  }
  if (in_rest > 0) {
    text.append(formatted("  + {}  {} more, sum {}\n", vector_text(rest), in_rest, number_text(weight_of_rest)));
  }
  return text + style_.strong(formatted("  context_{} = {}", query_ + 1, vector_text(row("context", query_)))) + "\n";
}

std::string Walk::averaging() {
  return heading("Weights: the same for this token and all before it") +
         formatted("  1 / {} = {}\n", query_ + 1, number_text(1.0 / static_cast<double>(query_ + 1)));
}

std::string Walk::output_projection() {
  std::string text;
  if (has("merged")) {
    text = heading("Heads: the contexts of all heads, side by side") +
           formatted("  merged_{} = {}\n", query_ + 1, vector_text(row("merged", query_)));
  }
  if (!has("output")) return text;
  const std::string name = has("latents") ? "o_proj" : "out_proj";
  const Tensor weight = parameter(name + ".weight"), bias = parameter(name + ".bias");
  const Row from = row(has("merged")   ? "merged"
                       : has("normed") ? "normed"
                                       : "context",
                       query_),
            to = row("output", query_);
  text.append(heading("Output projection: " + name));
  text.append(components("output", from, weight, bias, 0, to));
  return text + style_.strong(formatted("  output_{} = {}", query_ + 1, vector_text(to))) + "\n";
}

std::string Walk::all_queries() {
  std::string text = heading("All queries at once");
  const auto scores = std::ranges::find(known_steps(), "scores", &Step::name);
  for (const Step& step : std::span(scores, known_steps().end())) {
    if (!has(step.name)) continue;
    text.append(formatted("{}\n{}\n", step.name, labelled(matrix(step.name), walked_.tokens)));
    if (step.name == "weights" && matrix(step.name).size(1) <= 16) {
      text.append(heatmap(matrix(step.name), walked_.tokens, style_, keep()));
    }
  }
  return text;
}

std::string Walk::text() {
  section_ = 0;
  std::string text = intro();
  text.append(inputs());
  if (has("latents")) {
    text.append(latents());
    text.append(latent_projections());
  } else if (has("queries")) {
    text.append(projections());
  }
  if (has("mapped keys")) {
    text.append(recurrence());
  } else if (has("scores")) {
    for (const auto section :
         {&Walk::rotation, &Walk::scores, &Walk::scaling, &Walk::masking, &Walk::softmax, &Walk::dropout}) {
      text.append((this->*section)());
    }
  } else {
    text.append(averaging());
  }
  text.append(context());
  if (has("latents")) text.append(absorbed());
  for (const auto section : {&Walk::normalisation, &Walk::output_projection, &Walk::all_queries}) {
    text.append((this->*section)());
  }
  return text;
}

}  // namespace attn::tool
