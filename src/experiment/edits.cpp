// The edits that experiments are made of.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/error.hpp"
#include "core/decimal.hpp"
#include "core/known.hpp"
#include "core/rows.hpp"
#include "experiment/measures.hpp"
#include "lm/editor.hpp"

namespace attn {
namespace {

using experiment::kOp;
using experiment::mean_rows;
using Of = Edit::Of;
using Gives = Edit::Gives;

// In both ways: pages and the command count from 1.
std::string head_text(HeadAt at) {
  return "head " + std::to_string(at.head) + " of layer " + std::to_string(at.layer) + ", counted from 0 (" +
         std::to_string(at.layer + 1) + "." + std::to_string(at.head + 1) + " from 1)";
}

std::string layer_text(std::int64_t layer) {
  return "all heads of layer " + std::to_string(layer) + ", counted from 0 (" + std::to_string(layer + 1) + " from 1),";
}

// The change that multiplies by a factor, which float32 must be able to hold.
auto scaling(double factor) {
  if (!std::isfinite(static_cast<float>(factor))) {
    throw Error(Error::Kind::argument, kOp, "a factor within float32's range", shortest_decimal(factor));
  }
  return [factor](const Tensor& x, const Seen&) {
    Tensor y = x.clone();
    scale_in_place(y, factor);
    return y;
  };
}

// As Tensor::expand(): from the right, each size is 1 or the other's.
bool expands(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  const std::size_t more = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != to[more + i]) return false;
  }
  return true;
}

// The change that puts `value` in the place of `what`, a step or what a head gives.
auto replacing(const std::string& what, const Tensor& value) {
  return [value, what](const Tensor& x, const Seen&) {
    if (!expands(value.shape(), x.shape())) {
      throw Error(Error::Kind::shape, kOp, "for " + what + " sizes of 1 or those of " + x.shape().str(),
                  value.shape().str());
    }
    return value;
  };
}

Tensor zero(const Tensor& x, const Seen&) { return Tensor::zeros(x.shape(), x.dtype()); }
Tensor mean(const Tensor& x, const Seen&) {
  if (x.rank() == 3) return mean_rows(x);
  Tensor y = Tensor::empty({x.size(0), x.size(1), 1, x.size(3)});
  for (std::int64_t h = 0; h < x.size(1); ++h) y.select(1, h).copy_from(mean_rows(x.select(1, h)));
  return y;
}

// Weights (tq, tk) of one head.
Tensor uniform_of_head(std::int64_t tq, std::int64_t tk, const Seen& seen) {
  const Tensor weights = Tensor::zeros({tq, tk});
  for (std::int64_t i = 0; i < tq; ++i) {
    float* row = weights.data<float>() + i * tk;
    for (std::int64_t j = 0; j < tk; ++j) row[j] = seen(i, j) ? 1.0f : 0.0f;
    const auto count = static_cast<float>(std::count(row, row + tk, 1.0f));
    for (std::int64_t j = 0; j < tk && count > 0; ++j) row[j] /= count;  // 1 / n on the n keys that it sees
  }
  return weights;
}

Tensor previous_of_head(std::int64_t tq, std::int64_t tk, const Seen& seen) {
  Tensor weights = Tensor::zeros({tq, tk});
  for (std::int64_t i = 0; i < tq; ++i) {
    const std::int64_t key = std::max<std::int64_t>(i - 1, 0);
    weights.set({i, key}, seen(i, key));
  }
  return weights;
}

// For `x`, the weights (b, tq, tk) of the head that `seen` is of, or (b, heads, tq, tk), each of what it sees.
Tensor weights_by(decltype(uniform_of_head) of_head, const Tensor& x, Seen seen) {
  const std::int64_t tq = x.size(-2), tk = x.size(-1);
  if (x.rank() == 3) return of_head(tq, tk, seen);
  const Tensor all = Tensor::empty({x.size(1), tq, tk});
  for (std::int64_t h = 0; h < x.size(1); ++h) {
    seen.head = h;
    all.select(0, h).copy_from(of_head(tq, tk, seen));
  }
  return all;
}
Tensor uniform(const Tensor& x, const Seen& seen) { return weights_by(uniform_of_head, x, seen); }
Tensor previous(const Tensor& x, const Seen& seen) { return weights_by(previous_of_head, x, seen); }

Edit giving(Edit::Gives gives, Edit edit) {
  edit.gives = gives;
  return edit;
}

Edit off(HeadAt at, std::optional<std::int64_t> head, By by, const std::string& what) {
  require_known("experiment", "by", by, By::uniform);
  const bool alike = by == By::uniform;
  const auto change = alike ? uniform : by == By::zero ? zero : mean;
  return giving(alike            ? Gives::other
                : by == By::zero ? Gives::nothing
                                 : Gives::changed,
                {Of::attention, alike ? "weights" : "context", at.layer, head, {}, change, what + " switched off"});
}

Edit hidden(std::int64_t layer, std::optional<std::int64_t> head, std::int64_t key, const LanguageModelConfig& c) {
  const auto at = static_cast<std::size_t>(layer);
  if (at < c.layers.size() && c.layers[at].mixer != Mixer::softmax) {
    throw Error(Error::Kind::argument, kOp, "softmax attention in every layer that a key is hidden from",
                "a state in layer " + std::to_string(layer) + ", which every key has changed");
  }
  const char* step = c.causal ? "masked" : c.attention_softcap > 0 ? "capped" : "scaled";
  const auto change = [key](const Tensor& x, const Seen&) {
    if (key < 0 || key >= x.size(-1)) {
      throw Error(Error::Kind::argument, kOp, "a token from 0 to " + std::to_string(x.size(-1) - 1),
                  std::to_string(key));
    }
    Tensor y = x.clone();
    y.slice(-1, key, key + 1).fill(-std::numeric_limits<double>::infinity());
    return y;
  };
  return {Of::attention, step, layer, head, {}, change, "token " + std::to_string(key) + " hidden", key};
}

template <class Off>
Edits all_but(std::span<const HeadAt> heads, const LanguageModelConfig& config, const Off& off) {
  for (const HeadAt& at : heads) {
    const auto layers = std::ssize(config.layers);
    if (at.layer >= 0 && at.layer < layers && at.head >= 0 && at.head < config.heads_of(at.layer)) continue;
    const std::int64_t count = at.layer >= 0 && at.layer < layers ? config.heads_of(at.layer) : config.most_heads();
    throw Error(Error::Kind::argument, kOp, std::to_string(layers) + " layers of " + std::to_string(count) + " heads",
                head_text(at));
  }
  Edits edits;
  for (std::int64_t layer = 0; layer < std::ssize(config.layers); ++layer) {
    for (std::int64_t head = 0; head < config.heads_of(layer); ++head) {
      const bool kept =
          std::ranges::any_of(heads, [&](const HeadAt& at) { return at.layer == layer && at.head == head; });
      if (kept) continue;
      edits.push_back(off(HeadAt{layer, head}));
      edits.back().everywhere = true;
    }
  }
  if (edits.empty()) throw Error(Error::Kind::argument, kOp, "a head that is not kept", "all heads");
  return edits;
}

}  // namespace

Edit without(HeadAt at, By by) { return off(at, at.head, by, head_text(at)); }
Edit without_heads_of(std::int64_t layer, By by) { return off({layer, 0}, {}, by, layer_text(layer)); }

Edit without(HeadAt at, const Tensor& context) {
  const std::string what = head_text(at);
  return giving(Gives::other,
                {Of::attention, "context", at.layer, at.head, {}, replacing(what, context), what + " replaced"});
}

Edit without_heads_of(std::int64_t layer, const Tensor& contexts) {
  const Tensor all = contexts.rank() == 2 ? contexts.unsqueeze(1) : contexts;
  const std::string what = layer_text(layer);
  return giving(Gives::other, {Of::attention, "context", layer, {}, {}, replacing(what, all), what + " replaced"});
}

Edits keep_only(std::span<const HeadAt> heads, const LanguageModelConfig& config, By by) {
  return all_but(heads, config, [by](HeadAt at) { return without(at, by); });
}

Edits keep_only(std::span<const HeadAt> heads, const LanguageModelConfig& config, const Contexts& contexts) {
  return all_but(heads, config, [&](HeadAt at) {
    return without(at, contexts.at(static_cast<std::size_t>(at.layer)).select(0, at.head));
  });
}

Edit scale(HeadAt at, double factor) {
  return {Of::attention, "context", at.layer, at.head, {}, scaling(factor), head_text(at) + " scaled"};
}

Edit patch(HeadAt at, const Trace& steps, const LanguageModelConfig& config) {
  const Tensor& all = steps[editing::step_name(config, Of::attention, at.layer, "context")];
  Edit edit = without(at, (all.rank() == 4 ? all.select(1, at.head) : all).select(0, 0));
  edit.what = head_text(at) + " patched";
  return edit;
}

Edit reweigh(HeadAt at, Weights weights) {
  require_known("experiment", "weights", weights, Weights::none);
  const auto change = weights == Weights::uniform ? uniform : weights == Weights::previous ? previous : zero;
  return giving(weights == Weights::none ? Gives::nothing : Gives::other,
                {Of::attention, "weights", at.layer, at.head, {}, change, head_text(at) + " given other weights"});
}

Edit hide(HeadAt at, std::int64_t key, const LanguageModelConfig& config) {
  return hidden(at.layer, at.head, key, config);
}
Edit hide(std::int64_t layer, std::int64_t key, const LanguageModelConfig& config) {
  return hidden(layer, {}, key, config);
}

Edits hide(std::int64_t key, const LanguageModelConfig& config) {
  Edits edits;
  for (std::int64_t layer = 0; layer < std::ssize(config.layers); ++layer) {
    edits.push_back(hide(layer, key, config));
    edits.back().everywhere = true;
  }
  return edits;
}

Edit skip_layer(std::int64_t layer) {
  return giving(Gives::other, {Of::block, "output", layer, {}, "inputs", {}, "a layer skipped"});
}
Edit skip_attention(std::int64_t layer) {
  return giving(Gives::nothing, {Of::attention, "added", layer, {}, {}, zero, "attention skipped"});
}
Edit skip_feed_forward(std::int64_t layer) {
  return giving(Gives::nothing, {Of::feed_forward, "added", layer, {}, {}, zero, "feed-forward skipped"});
}

Edit replace_step(std::string step, const Tensor& value, std::optional<std::int64_t> head) {
  return giving(Gives::other, {Of::trace, step, 0, head, {}, replacing(step, value), "replaced"});
}
Edit scale_step(std::string step, double factor, std::optional<std::int64_t> head) {
  return {Of::trace, std::move(step), 0, head, {}, scaling(factor), "scaled"};
}

}  // namespace attn
