#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "common/table.hpp"
#include "core/escape.hpp"
#include "experiment/experiment.hpp"

namespace attn::tool {
namespace {

using Int = std::int64_t;

std::string signed_text(double value) { return formatted("{}{:.4f}", value < 0 ? "" : "+", value); }

// A token in quotes, at most so many characters of it.
std::string quoted(const std::string& token) {
  constexpr std::size_t most = 18;
  std::string text = escaped(token);
  if (text.size() > most) {
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "…";
  }
  return "'" + text + "'";
}

std::vector<std::string> numbers(Int count) {
  std::vector<std::string> names;
  for (Int i = 1; i <= count; ++i) names.push_back(std::to_string(i));
  return names;
}

// A matrix of layers × heads, or of rows and columns by other names.
void draw(Found& found, const Tensor& matrix, const char* rows, const char* columns, const char* what,
          std::vector<std::string> row_names, std::vector<std::string> column_names) {
  found.picture = matrix;
  found.figure.rows = rows, found.figure.columns = columns, found.figure.values = what;
  found.figure.tokens = std::move(row_names), found.figure.key_tokens = std::move(column_names);
  found.figure.scale = figure::Scale::linear;
}

void draw_heads(Found& found, const Tensor& matrix, const char* what) {
  draw(found, matrix, "layers", "heads", what, numbers(matrix.size(0)), numbers(matrix.size(1)));
}

// The cells (layer, head) of largest magnitude, as lines "3.1  +0.1234". `how`, where it is given, tells in a last
// column what a cell is.
using How = std::function<std::string(Int layer, Int head)>;
void tell_largest(Found& found, const Tensor& matrix, const std::string& what, std::size_t most = 8,
                  const How& how = {}) {
  std::vector<std::pair<Int, Int>> all;
  for (Int l = 0; l < matrix.size(0); ++l) {
    for (Int h = 0; h < matrix.size(1); ++h) all.emplace_back(l, h);
  }
  const auto value = [&](const std::pair<Int, Int>& at) { return matrix.at({at.first, at.second}); };
  std::ranges::stable_sort(all, [&](const auto& a, const auto& b) { return std::abs(value(a)) > std::abs(value(b)); });
  all.resize(std::min(most, all.size()));
  Table table{{"head", what}};
  if (how) table.front().emplace_back();
  for (const auto& [l, h] : all) {
    table.push_back({formatted("{}.{}", l + 1, h + 1), signed_text(matrix.at({l, h}))});
    if (how) table.back().push_back(how(l, h));
  }
  for (std::string& line : table_lines(table, how ? "<><" : "<>")) found.lines.push_back(std::move(line));
}

Tensor difference(const Tensor& after, const Tensor& before) {
  Tensor d = after.clone();
  for (Int i = 0; i < d.numel(); ++i) d.data<double>()[i] -= before.contiguous().data<double>()[i];
  return d;
}

Tensor difference(const Tensor& after, double before) {
  return difference(after, Tensor::full(after.shape(), before, DType::f64));
}

Json basic(const Reading& reading) {
  Json json;
  json["tokens"] = reading.tokens;
  json["ids"] = json_values(reading.ids);
  return json;
}

// The second pass of a comparison: with edits, or of another model or text; undefined where there is none.
Tensor second_logits(const Reading& one, const Edits& edits, const Reading* other) {
  if (other) return edited_forward(other->lm(), other->ids, edits);
  return edits.empty() ? Tensor{} : edited_forward(one.lm(), one.ids, edits);
}
Tensor first_logits(const Reading& one, const Edits& edits, const Reading* other) {
  return edited_forward(one.lm(), one.ids, other ? edits : Edits{});
}

const char* first_name(const Reading* other) { return other ? "the first" : "as it is"; }
const char* second_name(const Reading* other) { return other ? "the other" : "changed"; }

// A title, and the text's tokens.
Found titled(std::string title, const Reading& reading) {
  return {.title = std::move(title), .lines = {}, .json = basic(reading), .picture = {}, .figure = {}};
}

// What is known of each head: `after`, or else its estimate.
void tell_effects(Found& found, const Effects& effects, const char* measure) {
  Tensor known = effects.after.clone();
  Int exact = 0;
  double furthest = 0;
  for (Int l = 0; l < known.size(0); ++l) {
    for (Int h = 0; h < known.size(1); ++h) {
      const double estimate = effects.estimates.at({l, h});
      if (std::isnan(known.at({l, h}))) {
        known.set({l, h}, estimate);
      } else {
        ++exact, furthest = std::max(furthest, std::abs(estimate - known.at({l, h})));
      }
    }
  }
  found.title = formatted("Effects of switched-off heads on the {}; {} of {} are estimates", measure,
                          known.numel() - exact, known.numel());
  const Tensor shown = difference(known, effects.before);
  draw_heads(found, shown, measure);
  tell_largest(found, shown, measure, 8, [&](Int l, Int h) {
    return std::string(std::isnan(effects.after.at({l, h})) ? "estimate" : "exact");
  });
  found.lines.emplace_back();
  found.lines.push_back(formatted("With all heads the {} is {:.4f}.", measure, effects.before));
  if (exact > 0) {
    found.lines.push_back(formatted("Estimates of the exact ones are off by {:.4f} on average, and {:.4f} at most.",
                                    effects.error, furthest));
  }
  found.lines.emplace_back("Without --exact every head is switched off.");
  found.json["estimates"] = json_values(effects.estimates);
  found.json["estimate_error"] = json_number(effects.error);
}

}  // namespace

std::string Reading::token(std::int64_t id) const { return quoted(tokenizer->decode(id)); }

Found losses(const Reading& one, const Edits& edits, const Reading* other) {
  const Tensor before = token_losses(first_logits(one, edits, other), one.ids);
  const Tensor logits = second_logits(one, edits, other);
  const Tensor after = logits.defined() ? token_losses(logits, one.ids) : Tensor{};
  Found found = titled("Loss of each token, in nats: -log of the chance that the model gave it", one);
  Table table{{"", "token", first_name(other)}};
  if (after.defined()) table.front().insert(table.front().end(), {second_name(other), "difference"});
  const auto row = [&](const std::string& place, const std::string& token, double a, double b) {
    table.push_back({place, token, formatted("{:.4f}", a)});
    if (after.defined()) table.back().insert(table.back().end(), {formatted("{:.4f}", b), signed_text(b - a)});
  };
  for (Int i = 0; i < before.numel(); ++i) {
    row(std::to_string(i + 2), quoted(one.tokens[static_cast<std::size_t>(i) + 1]), before.at({i}),
        after.defined() ? after.at({i}) : 0);
  }
  const double mean = mean_of(before), changed = after.defined() ? mean_of(after) : 0;
  row("", "mean", mean, changed);
  for (std::string& line : table_lines(table, after.defined() ? "><>>>" : "><>"))
    found.lines.push_back(std::move(line));
  found.json["losses"] = json_values(before), found.json["loss"] = json_number(mean);
  if (after.defined())
    found.json["losses_changed"] = json_values(after), found.json["loss_changed"] = json_number(changed);
  return found;
}

Found next_tokens(const Reading& one, const Edits& edits, const Reading* other, Int count) {
  const auto chances = [](const Tensor& logits) { return log_probabilities(logits.select(0, logits.size(0) - 1)); };
  const Tensor before = chances(first_logits(one, edits, other)), logits = second_logits(one, edits, other);
  const Tensor after = logits.defined() ? chances(logits) : Tensor{};
  Found found = titled("Chances of the next token", one);
  std::vector<Int> ids;
  for (const Tensor* logs : {&before, &after}) {
    if (!logs->defined()) continue;
    std::vector<Int> order(static_cast<std::size_t>(logs->numel()));
    std::iota(order.begin(), order.end(), Int{0});
    const auto end = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
    const double* value = logs->data<double>();
    std::partial_sort(order.begin(), end, order.end(),
                      [&](Int a, Int b) { return value[a] > value[b] || (value[a] == value[b] && a < b); });
    for (auto at = order.begin(); at != end; ++at) {
      if (std::ranges::find(ids, *at) == ids.end()) ids.push_back(*at);
    }
  }
  Table table{{"token", "id", first_name(other)}};
  if (after.defined()) table.front().push_back(second_name(other));
  for (const Int id : ids) {
    const double a = std::exp(before.at({id})), b = after.defined() ? std::exp(after.at({id})) : 0;
    table.push_back({one.token(id), std::to_string(id), formatted("{:.4f}", a)});
    if (after.defined()) table.back().push_back(formatted("{:.4f}", b));
    Json entry{{"id", id}, {"token", one.tokenizer->decode(id)}, {"chance", json_number(a)}};
    if (after.defined()) entry["chance_changed"] = json_number(b);
    found.json["next"].push_back(entry);
  }
  for (std::string& line : table_lines(table, after.defined() ? "<>>>" : "<>>")) found.lines.push_back(std::move(line));
  return found;
}

Found effects(const Reading& one, const EffectOptions& options, const Reading* other) {
  const Effects first = head_effects(one.lm(), one.ids, options);
  const char* measure = options.tokens ? "logit difference" : "loss";
  Found found = titled(
      formatted("What switching off a head adds to the {}, {} with all heads", measure, fixed(first.before, 4)), one);
  found.json["before"] = json_number(first.before), found.json["after"] = json_values(first.after);
  if (first.estimates.defined()) {
    tell_effects(found, first, measure);
    return found;
  }
  Tensor shown = difference(first.after, first.before);
  if (other) {
    const Effects second = head_effects(other->lm(), other->ids, options);
    if (!(second.after.shape() == first.after.shape())) {
      throw Error(Error::Kind::argument, "--effects", "two models of as many layers and heads", "others");
    }
    shown = difference(difference(second.after, second.before), shown);
    found.title = formatted("What switching off a head adds to the {} in the other, less that here", measure);
    found.json["before_other"] = json_number(second.before), found.json["after_other"] = json_values(second.after);
  }
  draw_heads(found, shown, measure);
  tell_largest(found, shown, measure);
  return found;
}

Found changes(const Reading& one, const Edits& edits) {
  const Tensor table = head_changes(one.lm(), one.ids, edits);
  Found found = titled("How much each head gives otherwise: |z' - z| / |z|", one);
  found.json["changes"] = json_values(table);
  draw_heads(found, table, "change");
  tell_largest(found, table, "change");
  return found;
}

Found lens(const Reading& one, const Edits& edits) {
  const Lens read = logit_lens(one.lm(), one.ids, edits);
  Found found = titled("The logit lens: what the last norm and the head read in each layer", one);
  const Int layers = read.tokens.size(0), t = read.tokens.size(1);
  std::vector<std::string> rows;
  Table table{{"into layer", "likeliest next token", "chance", "loss of the text"}};
  for (Int l = 0; l < layers; ++l) {
    rows.push_back(l + 1 < layers ? std::to_string(l + 1) : "out");
    const Int id = read.tokens.data<Int>()[l * t + t - 1];
    table.push_back({rows.back(), one.token(id), formatted("{:.4f}", read.probability.at({l, t - 1})),
                     t > 1 ? formatted("{:.4f}", mean_of(read.losses.select(0, l))) : ""});
  }
  for (std::string& line : table_lines(table, "<<>>")) found.lines.push_back(std::move(line));
  found.json["likeliest"] = json_values(read.tokens), found.json["chance"] = json_values(read.probability);
  if (t > 1) found.json["losses"] = json_values(read.losses);
  draw(found, read.probability, "layers", "tokens", "chance", rows, one.tokens);
  return found;
}

Found patched(const Reading& clean, const Reading& corrupt, TokenPair tokens, bool heads) {
  const Patching p = patching(clean.lm(), clean.ids, corrupt.ids, tokens);
  Found found = titled(formatted("{} less {}, their logits: {} in the text, {} in the other", clean.token(tokens.a),
                                 clean.token(tokens.b), signed_text(p.clean), signed_text(p.corrupt)),
                       clean);
  found.lines = {"1: patching this part of the text into the other gives back all of the difference.",
                 "0: it gives back none."};
  found.json["other_tokens"] = corrupt.tokens;
  found.json["clean"] = json_number(p.clean), found.json["corrupt"] = json_number(p.corrupt);
  found.json["stream"] = json_values(p.stream), found.json["heads"] = json_values(p.heads);
  if (heads) {
    draw_heads(found, p.heads, "share");
  } else {
    draw(found, p.stream, "layers", "tokens", "share", numbers(p.stream.size(0)), clean.tokens);
  }
  tell_largest(found, p.heads, "share");
  return found;
}

Found attributed(const Reading& one, const Edits& edits, Int a, std::optional<Int> b) {
  const Attribution parts = attribution(one.lm(), one.ids, a, b, {}, edits);
  const std::string of = one.token(a) + (b ? " less that of " + one.token(*b) : "");
  Found found = titled("What each part adds to the logit of " + of + ", at the last token", one);
  double heads = 0, biases = 0, feed_forwards = 0;
  for (Int l = 0; l < parts.heads.size(0); ++l) {
    for (Int h = 0; h < parts.heads.size(1); ++h) heads += parts.heads.at({l, h});
    biases += parts.biases.at({l}), feed_forwards += parts.feed_forwards.at({l});
  }
  Table table{{"all heads", signed_text(heads)},
              {"all feed-forwards", signed_text(feed_forwards)},
              {"biases", signed_text(biases + parts.bias)},
              {"embedding", signed_text(parts.embedding)},
              {"sum", signed_text(parts.sum)},
              {"the model's logit", signed_text(parts.logit)}};
  for (std::string& line : table_lines(table, "<>")) found.lines.push_back(std::move(line));
  found.lines.emplace_back();
  found.json["heads"] = json_values(parts.heads), found.json["biases"] = json_values(parts.biases);
  found.json["feed_forwards"] = json_values(parts.feed_forwards);
  found.json["embedding"] = json_number(parts.embedding), found.json["bias"] = json_number(parts.bias);
  found.json["sum"] = json_number(parts.sum), found.json["logit"] = json_number(parts.logit);
  draw_heads(found, parts.heads, "logit");
  tell_largest(found, parts.heads, "logit");
  return found;
}

Found rolled_out(const Reading& one, const Edits& edits) {
  const Tensor all =
      one.model->writes() ? rollout(one.lm(), one.ids, edits) : rollout(*one.model->encoder(), one.ids, edits);
  Found found = titled("Attention rollout: where each token of the last layer comes from", one);
  found.json["rollout"] = json_values(all);
  draw(found, all.select(0, all.size(0) - 1).contiguous(), "queries", "keys", "share", one.tokens, one.tokens);
  found.figure.scale = figure::Scale::automatic;
  return found;
}

Found scored(const Reading& one, const Edits& edits) {
  const Int n = one.ids.numel(), most = one.lm().config().context_length;
  if (n < 2 || 2 * n > most) {
    throw Error(Error::Kind::argument, "--scores", formatted("a text of 2 to {} tokens, which is read twice", most / 2),
                std::to_string(n));
  }
  Tensor twice = Tensor::empty({2 * n}, DType::i64);
  for (Int half : {0, 1}) twice.slice(0, half * n, (half + 1) * n).copy_from(one.ids);
  const HeadScores scores = head_scores(one.lm(), twice, edits);
  Found found = titled("Scores of heads on the text, read twice; the figure shows induction", one);
  for (const auto& [name, table] : {std::pair{"previous token", &scores.previous},
                                    {"duplicate token", &scores.duplicate},
                                    {"induction", &scores.induction}}) {
    tell_largest(found, *table, name, 3);
    found.lines.emplace_back();
  }
  found.lines.pop_back();
  found.json["previous"] = json_values(scores.previous), found.json["duplicate"] = json_values(scores.duplicate);
  found.json["induction"] = json_values(scores.induction);
  draw_heads(found, scores.induction, "induction");
  return found;
}

}  // namespace attn::tool
