// Every head switched off in turn, and one text's activations patched into another's: passes that begin where they
// differ, many at a time.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "attn/error.hpp"
#include "experiment/estimates.hpp"
#include "experiment/measures.hpp"
#include "experiment/passes.hpp"
#include "lm/editor.hpp"

namespace attn {
namespace {

using editing::Editor;
using editing::step_name;
using experiment::Prefix;
using Of = Edit::Of;

// The edits that act from a layer on, all others having acted in what goes into it, those of its inputs among them.
// Edits of a trace's names are kept by the layer that their name holds, so that check() is not asked of a part of a
// pass.
Edits in_or_after(const Edits& edits, const LanguageModelConfig& c, std::int64_t layer) {
  Edits left;
  for (const Edit& edit : edits) {
    std::int64_t at = edit.layer;
    for (std::int64_t l = 0; edit.of == Of::trace && l < std::ssize(c.layers); ++l) {
      if (edit.step.starts_with(step_name(c, Of::block, l, ""))) at = l;
    }
    const bool is_input = edit.of == Of::trace ? edit.step == step_name(c, Of::block, layer, "inputs")
                                               : edit.of == Of::block && at == layer && edit.step == "inputs";
    if (at >= layer && !is_input) left.push_back(edit);
  }
  return left;
}

Prefix prefix_of(LanguageModel& model, const Tensor& ids, const Edits& edits, std::string_view also = {}) {
  const LanguageModelConfig& c = model.config();
  Editor editor(edits, c);
  std::set<std::string> names;
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
    names.insert(step_name(c, Of::block, l, "inputs"));
    if (!also.empty()) names.insert(step_name(c, Of::attention, l, also));
  }
  editor.keep(names);
  Prefix prefix;
  prefix.logits = model.forward(experiment::one_text(ids), editor.trace()).select(0, 0);
  editor.check();
  prefix.kept = editor.take();
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
    prefix.inputs.push_back(prefix.kept.find(step_name(c, Of::block, l, "inputs"))->second);
  }
  return prefix;
}

// change(item, step (b, heads, t, n)) in each item of a batch, heads from `first` on.
using ChangeItem = std::function<void(std::int64_t item, const Tensor& step)>;
Edit in_each_item(std::int64_t layer, const char* step, const ChangeItem& change) {
  const auto all = [change](const Tensor& value, const Seen&) {
    const Tensor y = value.clone(), heads = y.rank() == 4 ? y : y.unsqueeze(1);
    for (std::int64_t i = 0; i < y.size(0); ++i) change(i, heads.slice(0, i, i + 1));
    return y;
  };
  return {Of::attention, step, layer, {}, {}, all, {}};
}

void check_texts(const Tensor& clean, const Tensor& corrupt) {
  if (clean.numel() == corrupt.numel()) return;
  throw Error(Error::Kind::shape, experiment::kOp, "two texts of as many tokens",
              std::to_string(clean.numel()) + " and " + std::to_string(corrupt.numel()),
              "change a word for another that is as many tokens");
}

// The positions at which two passes differ: elsewhere one patches nothing into the other.
std::vector<std::int64_t> differing(const Tensor& a, const Tensor& b) {
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < a.size(1); ++i) {
    for (std::int64_t j = 0; j < a.size(2); ++j) {
      if (a.at({0, i, j}) == b.at({0, i, j})) continue;
      positions.push_back(i);
      break;
    }
  }
  return positions;
}

// Throws Error (shape) unless there is for each layer what its own heads give, or nothing at all.
void check_contexts(const Contexts& all, const LanguageModelConfig& c) {
  bool right = all.empty() || all.size() == c.layers.size();
  for (std::size_t l = 0; right && l < all.size(); ++l) {
    right = (all[l].rank() == 2 || all[l].rank() == 3) && all[l].size(0) == c.heads_of(static_cast<std::int64_t>(l));
  }
  if (right) return;
  throw Error(Error::Kind::shape, experiment::kOp, "contexts (heads, head_dim) of " + experiment::heads_in_words(c),
              std::to_string(all.size()) + " layers, the first " + all.front().shape().str());
}

// The heads of each layer, those alone whose estimates differ most from `before`; of equal ones the first.
std::vector<std::vector<std::int64_t>> largest(const experiment::Estimates& estimates, std::int64_t count) {
  const std::int64_t heads = estimates.after.size(1);
  const auto size = [&](std::int64_t i) {
    const double change = std::abs(estimates.after.at({i / heads, i % heads}) - estimates.before);
    return std::isnan(change) ? HUGE_VAL : change;
  };
  std::vector<std::int64_t> order(static_cast<std::size_t>(estimates.after.numel()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return size(a) > size(b); });
  std::vector<std::vector<std::int64_t>> chosen(static_cast<std::size_t>(estimates.after.size(0)));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t head = order[static_cast<std::size_t>(i)];
    chosen[static_cast<std::size_t>(head / heads)].push_back(head % heads);
  }
  return chosen;
}

}  // namespace

namespace experiment {

void Passes::begin(std::vector<std::int64_t> counts) {
  counts_ = std::move(counts);
  left_ = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
}

void Passes::some(std::int64_t most) {
  if (left_ == 0) return;
  for (; first_ == counts_[static_cast<std::size_t>(layer_)]; ++layer_) first_ = 0;
  const std::int64_t count =
      std::min({most, together(ids_.numel()), counts_[static_cast<std::size_t>(layer_)] - first_});
  Edits edits = in_or_after(edits_, model_->config(), layer_);
  edits.push_back(difference(layer_, first_));
  Editor editor(edits, model_->config());
  const Tensor x = input(layer_, first_, count);
  take(layer_, first_, model_->hidden_from(static_cast<std::size_t>(layer_), x, editor.trace()));
  first_ += count, left_ -= count;
}

void Passes::all() {
  while (left_ > 0) some(left_);
}

std::vector<std::vector<std::int64_t>> all_heads(const LanguageModelConfig& config) {
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t l = 0; l < std::ssize(config.layers); ++l) {
    std::vector<std::int64_t>& heads = all.emplace_back(config.heads_of(l));
    std::iota(heads.begin(), heads.end(), std::int64_t{0});
  }
  return all;
}

HeadsOff::HeadsOff(LanguageModel& model, const Tensor& ids, const EffectOptions& options,
                   std::vector<std::vector<std::int64_t>> heads)
    : Passes(model, ids, options.edits), options_(options), heads_(std::move(heads)) {
  Prefix prefix = prefix_of(model, ids, options.edits);
  found.before = measure(prefix.logits, ids, options.tokens);
  found.after = table_of_heads(model.config());
  inputs_ = std::move(prefix.inputs);
  std::vector<std::int64_t> counts;
  for (const auto& of_layer : heads_) counts.push_back(std::ssize(of_layer));
  begin(std::move(counts));
}

Tensor HeadsOff::input(std::int64_t layer, std::int64_t, std::int64_t count) const {
  return repeated(inputs_[static_cast<std::size_t>(layer)], count);
}

Edit HeadsOff::difference(std::int64_t layer, std::int64_t first) const {
  const LanguageModelConfig& c = model().config();
  const auto l = static_cast<std::size_t>(layer);
  const Edit one = without({layer, 0}, options_.contexts.empty() ? options_.by : By::mean);
  const Tensor given = options_.contexts.empty() ? Tensor{} : options_.contexts[l];
  return in_each_item(layer, one.step.c_str(), [=, this](std::int64_t i, const Tensor& step) {
    const Tensor off = step.select(1, head(layer, first + i));
    const Tensor other = given.defined()
                             ? given.select(0, head(layer, first + i))
                             : one.change(off, editing::seen_in(c, options_.edits, layer, head(layer, first + i)));
    off.copy_from(other.expand(off.shape()));
  });
}

void HeadsOff::take(std::int64_t layer, std::int64_t first, const Tensor& hidden) {
  for (const double value : measured(model(), hidden, ids(), options_.tokens))
    found.after.set({layer, head(layer, first++)}, value);
}

Patched::Patched(LanguageModel& model, const Tensor& clean, const Tensor& corrupt, TokenPair tokens, const Edits& edits)
    : Passes(model, corrupt, edits), tokens_(tokens) {
  check_texts(clean, corrupt);
  check(tokens, model.config());
  good_ = prefix_of(model, clean, edits, "context"), bad_ = prefix_of(model, corrupt, edits);
  found.clean = logit_difference(good_.logits, tokens), found.corrupt = logit_difference(bad_.logits, tokens);
  if (found.clean == found.corrupt) {
    throw Error(Error::Kind::argument, kOp, "two texts between which the tokens' logits differ",
                "the same difference in both", "choose other tokens, or a text that is answered otherwise");
  }
  const auto layers = std::ssize(model.config().layers);
  found.stream = Tensor::zeros({layers, clean.numel()}, DType::f64);
  found.heads = table_of_heads(model.config());
  std::vector<std::int64_t> counts;
  for (std::size_t l = 0; l < good_.inputs.size(); ++l) {
    positions_.push_back(differing(good_.inputs[l], bad_.inputs[l]));
    counts.push_back(std::ssize(positions_.back()) + model.config().heads_of(static_cast<std::int64_t>(l)));
  }
  begin(std::move(counts));
}

Tensor Patched::input(std::int64_t layer, std::int64_t first, std::int64_t count) const {
  const auto l = static_cast<std::size_t>(layer);
  Tensor x = repeated(bad_.inputs[l], count);
  for (std::int64_t i = 0; i < count && first + i < std::ssize(positions_[l]); ++i) {
    const std::int64_t at = positions_[l][static_cast<std::size_t>(first + i)];
    x.select(0, i).select(0, at).copy_from(good_.inputs[l].select(0, 0).select(0, at));
  }
  return x;
}

Edit Patched::difference(std::int64_t layer, std::int64_t first) const {
  const Tensor& context = good_.kept.find(step_name(model().config(), Of::attention, layer, "context"))->second;
  const Tensor heads = context.rank() == 4 ? context : context.unsqueeze(1);
  const std::int64_t count = std::ssize(positions_[static_cast<std::size_t>(layer)]);
  return in_each_item(layer, "context", [heads, first, count](std::int64_t i, const Tensor& step) {
    const std::int64_t head = first + i - count;
    if (head >= 0) step.select(1, head).copy_from(heads.select(1, head));
  });
}

void Patched::take(std::int64_t layer, std::int64_t first, const Tensor& hidden) {
  const auto& positions = positions_[static_cast<std::size_t>(layer)];
  const std::int64_t count = std::ssize(positions);
  for (const double value : measured(model(), hidden, ids(), tokens_)) {
    const double share = (value - found.corrupt) / (found.clean - found.corrupt);
    first < count ? found.stream.set({layer, positions[static_cast<std::size_t>(first)]}, share)
                  : found.heads.set({layer, first - count}, share);
    ++first;
  }
}

}  // namespace experiment

Effects head_effects(LanguageModel& model, const Tensor& ids, const EffectOptions& options) {
  const LanguageModelConfig& c = model.config();
  const auto layers = std::ssize(c.layers);
  if (options.tokens) experiment::check(*options.tokens, c);
  if (options.exact && *options.exact < 0) {
    throw Error(Error::Kind::argument, experiment::kOp, "a number of exact effects, 0 or more",
                std::to_string(*options.exact));
  }
  check_contexts(options.contexts, c);
  std::int64_t count = 0;
  for (std::int64_t l = 0; l < layers; ++l) count += c.heads_of(l);
  if (!options.exact || *options.exact >= count) {
    experiment::HeadsOff passes(model, ids, options, experiment::all_heads(c));
    passes.all();
    return passes.found;
  }
  const experiment::Estimates estimates = experiment::estimated_effects(model, ids, options);
  Effects effects{.before = estimates.before, .after = experiment::table_of_heads(c), .estimates = estimates.after};
  if (options.exact == 0) return effects;
  const auto heads = largest(estimates, *options.exact);
  experiment::HeadsOff passes(model, ids, options, heads);
  passes.all();
  effects.before = passes.found.before, effects.after = passes.found.after;
  for (std::int64_t l = 0; l < layers; ++l) {
    for (const std::int64_t head : heads[static_cast<std::size_t>(l)]) {
      const double off = std::abs(effects.estimates.at({l, head}) - effects.after.at({l, head}));
      effects.error += off / static_cast<double>(*options.exact);
    }
  }
  return effects;
}

Patching patching(LanguageModel& model, const Tensor& clean, const Tensor& corrupt, TokenPair tokens,
                  const Edits& edits) {
  experiment::Patched passes(model, clean, corrupt, tokens, edits);
  passes.all();
  return passes.found;
}

}  // namespace attn
