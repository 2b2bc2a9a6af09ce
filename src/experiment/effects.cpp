// Every head switched off in turn, and one text's activations patched into another's: passes that begin where they
// differ, many at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attn/error.hpp"
#include "experiment/editor.hpp"
#include "experiment/estimates.hpp"
#include "experiment/measures.hpp"

namespace attn {
namespace {

using experiment::Editor;
using experiment::step_name;
using Of = Edit::Of;

// The edits that act from a layer on, all others having acted in what goes into it. Edits of a trace's names are kept
// by the layer that their name holds, so that check() is not asked of a part of a pass.
Edits in_or_after(const Edits& edits, const LanguageModelConfig& c, std::int64_t layer) {
  Edits left;
  for (const Edit& edit : edits) {
    std::int64_t at = edit.layer;
    for (std::int64_t l = 0; edit.of == Of::trace && l < std::ssize(c.layers); ++l) {
      if (edit.step.starts_with(step_name(c, Of::block, l, ""))) at = l;
    }
    if (at >= layer) left.push_back(edit);
  }
  return left;
}

// What goes into each layer of a pass, and what else is asked for; with the hidden states after the last norm.
struct Prefix {
  std::vector<Tensor> inputs;
  experiment::Kept kept;
  Tensor logits;  // (t, vocab)
};

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

// The tails of `items` passes from a layer on, of which edit(first, count) tells what differs: hidden states.
template <class Input, class Differ, class Take>
void tails(LanguageModel& model, const Edits& edits, std::int64_t layer, std::int64_t items, std::int64_t t,
           const Input& input, const Differ& differ, const Take& take) {
  const std::int64_t part = experiment::together(t);
  for (std::int64_t first = 0; first < items; first += part) {
    const std::int64_t count = std::min(part, items - first);
    Edits all = in_or_after(edits, model.config(), layer);
    differ(all, first);
    Editor editor(all, model.config());
    take(first, model.hidden_from(static_cast<std::size_t>(layer), input(first, count), editor.trace()));
  }
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

// One layer's share of patching(): a pass for each position that differs, and then one for each head.
void patch_layer(LanguageModel& model, std::int64_t l, const Prefix& good, const Prefix& bad, const Tensor& corrupt,
                 TokenPair tokens, Patching& found) {
  const Tensor &from = good.inputs[static_cast<std::size_t>(l)], &to = bad.inputs[static_cast<std::size_t>(l)];
  const Tensor& context = good.kept.find(step_name(model.config(), Of::attention, l, "context"))->second;
  const Tensor heads = context.rank() == 4 ? context : context.unsqueeze(1);
  const std::vector<std::int64_t> positions = differing(from, to);
  const std::int64_t count = std::ssize(positions);
  const auto position = [&](std::int64_t item) { return positions[static_cast<std::size_t>(item)]; };
  tails(
      model, {}, l, count + heads.size(1), corrupt.numel(),
      [&](std::int64_t first, std::int64_t items) {
        Tensor x = experiment::repeated(to, items);
        for (std::int64_t i = 0; i < items && first + i < count; ++i) {
          const std::int64_t at = position(first + i);
          x.select(0, i).select(0, at).copy_from(from.select(0, 0).select(0, at));
        }
        return x;
      },
      [&](Edits& edits, std::int64_t first) {
        edits.push_back(in_each_item(l, "context", [heads, first, count](std::int64_t i, const Tensor& step) {
          const std::int64_t head = first + i - count;
          if (head >= 0) step.select(1, head).copy_from(heads.select(1, head));
        }));
      },
      [&](std::int64_t first, const Tensor& hidden) {
        for (const double value : experiment::measured(model, hidden, corrupt, tokens)) {
          const double share = (value - found.corrupt) / (found.clean - found.corrupt);
          first < count ? found.stream.set({l, position(first)}, share) : found.heads.set({l, first - count}, share);
          ++first;
        }
      });
}

// `after` of these heads of a layer: passes without one of them, which begin there.
void switch_off(LanguageModel& model, const Tensor& ids, const EffectOptions& options, const Tensor& x, std::int64_t l,
                const std::vector<std::int64_t>& heads, Tensor after) {
  const LanguageModelConfig& c = model.config();
  const Edit one = without({l, 0}, options.means.defined() ? By::mean : options.by);
  const Seen seen{c.causal, c.layers[static_cast<std::size_t>(l)].window};
  const Tensor means = options.means.defined() ? options.means.select(0, l) : Tensor{};
  const auto head_of = [&heads](std::int64_t item) { return heads[static_cast<std::size_t>(item)]; };
  tails(
      model, options.edits, l, std::ssize(heads), ids.numel(),
      [&](std::int64_t, std::int64_t count) { return experiment::repeated(x, count); },
      [&](Edits& edits, std::int64_t first) {
        edits.push_back(
            in_each_item(l, one.step.c_str(), [&one, means, head_of, seen, first](std::int64_t i, const Tensor& step) {
              const Tensor head = step.select(1, head_of(first + i));
              const Tensor other = means.defined() ? means.select(0, head_of(first + i)) : one.change(head, seen);
              head.copy_from(other.expand(head.shape()));
            }));
      },
      [&](std::int64_t first, const Tensor& hidden) {
        for (const double value : experiment::measured(model, hidden, ids, options.tokens)) {
          after.set({l, head_of(first++)}, value);
        }
      });
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

Effects head_effects(LanguageModel& model, const Tensor& ids, const EffectOptions& options) {
  const LanguageModelConfig& c = model.config();
  const auto layers = std::ssize(c.layers);
  if (options.tokens) experiment::check(*options.tokens, c);
  if (options.exact && *options.exact < 0) {
    throw Error(Error::Kind::argument, experiment::kOp, "a number of exact effects, 0 or more",
                std::to_string(*options.exact));
  }
  if (options.means.defined() && !(options.means.shape() == Shape{layers, c.heads, c.head_dim})) {
    throw Error(Error::Kind::shape, experiment::kOp, "means (layers, heads, head_dim)", options.means.shape().str());
  }
  Effects effects;
  std::vector<std::int64_t> all(static_cast<std::size_t>(c.heads));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  std::vector<std::vector<std::int64_t>> heads(static_cast<std::size_t>(layers), all);
  if (options.exact && *options.exact < layers * c.heads) {
    const experiment::Estimates estimates = experiment::estimated_effects(model, ids, options);
    effects.before = estimates.before, effects.estimates = estimates.after;
    heads = largest(estimates, *options.exact);
  }
  effects.after = Tensor::full({layers, c.heads}, std::numeric_limits<double>::quiet_NaN(), DType::f64);
  if (options.exact == 0) return effects;
  const Prefix prefix = prefix_of(model, ids, options.edits);
  effects.before = experiment::measure(prefix.logits, ids, options.tokens);
  for (std::int64_t l = 0; l < layers; ++l) {
    const auto at = static_cast<std::size_t>(l);
    switch_off(model, ids, options, prefix.inputs[at], l, heads[at], effects.after);
    if (!effects.estimates.defined()) continue;
    for (const std::int64_t head : heads[at]) {
      const double off = std::abs(effects.estimates.at({l, head}) - effects.after.at({l, head}));
      effects.error += off / static_cast<double>(*options.exact);
    }
  }
  return effects;
}

Patching patching(LanguageModel& model, const Tensor& clean, const Tensor& corrupt, TokenPair tokens) {
  const LanguageModelConfig& c = model.config();
  check_texts(clean, corrupt);
  experiment::check(tokens, c);
  const Prefix good = prefix_of(model, clean, {}, "context"), bad = prefix_of(model, corrupt, {});
  Patching found;
  found.clean = experiment::logit_difference(good.logits, tokens);
  found.corrupt = experiment::logit_difference(bad.logits, tokens);
  if (found.clean == found.corrupt) {
    throw Error(Error::Kind::argument, experiment::kOp, "two texts between which the tokens' logits differ",
                "the same difference in both", "choose other tokens, or a text that is answered otherwise");
  }
  const auto layers = std::ssize(c.layers);
  found.stream = Tensor::zeros({layers, clean.numel()}, DType::f64);
  found.heads = Tensor::empty({layers, c.heads}, DType::f64);
  for (std::int64_t l = 0; l < layers; ++l) patch_layer(model, l, good, bad, corrupt, tokens, found);
  return found;
}

}  // namespace attn
