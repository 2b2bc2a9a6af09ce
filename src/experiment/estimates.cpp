#include "experiment/estimates.hpp"

#include <algorithm>
#include <utility>

#include "attn/cross_entropy.hpp"
#include "attn/error.hpp"
#include "experiment/measures.hpp"
#include "lm/editor.hpp"

namespace attn::experiment {
namespace {

using Rows = std::vector<double>;  // (t + 1, d): row i is the sum of rows before i

[[noreturn]] void refuse(Error::Kind kind, const char* expected, const std::string& found) {
  throw Error(kind, kOp, std::string(expected) + ", for estimates of effects", found,
              "leave exact out, and every head is switched off");
}

void check(LanguageModel& model, const Edits& edits) {
  if (!edits.empty()) {
    const Edit& first = edits.front();
    const std::string more = edits.size() > 1 ? " and " + std::to_string(edits.size() - 1) + " more" : "";
    refuse(Error::Kind::argument, "no other change",
           (first.of == Edit::Of::trace ? first.step + " " : "") + first.what + more);
  }
  for (const auto& block : model.blocks) {
    if (block->recurrent) refuse(Error::Kind::argument, "layers of softmax attention", "one that keeps a state");
    if (block->latent) refuse(Error::Kind::argument, "layers with keys of their own", "one that makes them of latents");
  }
  for (const Parameter* p : model.parameters()) {
    const bool few = p->blocks || p->scales.defined();
    if (few) refuse(Error::Kind::dtype, "weights in float32 or bfloat16", p->name + " in fewer bits");
  }
}

Rows running_sums(const float* x, std::int64_t t, std::int64_t d) {
  Rows sums(static_cast<std::size_t>((t + 1) * d));
  for (std::int64_t i = 0; i < t * d; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sums[at + static_cast<std::size_t>(d)] = sums[at] + static_cast<double>(x[i]);
  }
  return sums;
}

// Computes what a head (t, d) gives once it is switched off, from the values (t, d) that it reads.
class Replacement {
 public:
  Replacement(By by, const Seen& seen, const float* context, const float* values, const Tensor& given, std::int64_t t,
              std::int64_t d)
      : by_(by), seen_(seen), given_(given), t_(t), d_(d) {
    if (by != By::zero && !given.defined()) sums_ = running_sums(by == By::mean ? context : values, t, d);
  }
  double at(std::int64_t i, std::int64_t j) const {
    if (given_.defined()) return given_.rank() == 1 ? given_.at({j}) : given_.at({i, j});
    if (by_ == By::zero) return 0;
    // The keys that a query sees follow each other.
    const bool some = by_ == By::uniform && seen_.causal;
    const std::int64_t end = some ? i + 1 : t_;
    const std::int64_t begin = some && seen_.window > 0 ? std::max<std::int64_t>(0, end - seen_.window) : 0;
    const auto sum = [&](std::int64_t row) { return sums_[static_cast<std::size_t>(row * d_ + j)]; };
    return (sum(end) - sum(begin)) / static_cast<double>(end - begin);
  }

 private:
  By by_;
  Seen seen_;
  Tensor given_;  // what other texts give, (d) or (t, d), where it is to take the place
  std::int64_t t_, d_;
  Rows sums_;
};

// Σ gradient · (replacement - context) of each head of a layer, added to the row `to` (heads).
void add_layer(Tensor to, const EffectOptions& options, std::size_t layer, const Seen& seen, const Tensor& context,
               const Tensor& gradient, const Tensor& values) {
  const std::int64_t heads = context.size(1), t = context.size(2), d = context.size(3);
  const std::int64_t shared = heads / values.size(1);  // query heads of a key head
  const auto head_of = [](const Tensor& x, std::int64_t h) {
    return x.select(0, 0).select(0, h).to(DType::f32).contiguous();
  };
  for (std::int64_t h = 0; h < heads; ++h) {
    const Tensor z = head_of(context, h), g = head_of(gradient, h), v = head_of(values, h / shared);
    const Tensor given = options.contexts.empty() ? Tensor{} : options.contexts[layer].select(0, h);
    const Replacement other(options.by, seen, z.data<float>(), v.data<float>(), given, t, d);
    double sum = 0;
    for (std::int64_t i = 0; i < t; ++i) {
      for (std::int64_t j = 0; j < d; ++j) {
        const std::int64_t at = i * d + j;
        const auto now = static_cast<double>(z.data<float>()[at]);
        sum += static_cast<double>(g.data<float>()[at]) * (other.at(i, j) - now);
      }
    }
    to.set({h}, to.at({h}) + sum);
  }
}

// While it lives, a backward pass tells of the heads, and computes no gradient of a weight.
class Listening {
 public:
  using Told =
      std::function<void(std::size_t layer, const Tensor& context, const Tensor& gradient, const Tensor& values)>;
  Listening(LanguageModel& model, const Told& told) : model_(model) {
    for (Parameter* p : model.parameters()) {
      if (p->requires_grad) required_.push_back(p);
      p->requires_grad = false;
    }
    for (std::size_t l = 0; l < model.blocks.size(); ++l) {
      others_.push_back(
          std::exchange(model.blocks[l]->attention.on_backward, [told, l](const auto&... all) { told(l, all...); }));
    }
  }
  ~Listening() {
    for (Parameter* p : required_) p->requires_grad = true;
    for (std::size_t l = 0; l < others_.size(); ++l) model_.blocks[l]->attention.on_backward = std::move(others_[l]);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  LanguageModel& model_;
  std::vector<Parameter*> required_;
  std::vector<HeadGradientTold> others_;
};

// The gradient of the measure by logits (t, vocab).
Tensor measure_gradient(const Tensor& logits, const Tensor& ids, const std::optional<TokenPair>& tokens) {
  const std::int64_t t = ids.numel();
  if (tokens) {
    Tensor d = Tensor::zeros(logits.shape());
    d.set({t - 1, tokens->a}, 1);
    d.set({t - 1, tokens->b}, d.at({t - 1, tokens->b}) - 1);
    return d;
  }
  const Tensor d = logits.clone(), targets = Tensor::full({t}, -100, DType::i64);
  targets.slice(0, 0, t - 1).copy_from(ids.slice(0, 1, t));
  cross_entropy_in_place(d, targets, 1 / static_cast<double>(t - 1));
  return d;
}

}  // namespace

Estimates estimated_effects(LanguageModel& model, const Tensor& ids, const EffectOptions& options) {
  const LanguageModelConfig& c = model.config();
  check(model, options.edits);
  const Tensor logits = model.forward(one_text(ids)).select(0, 0);
  Estimates found;
  found.before = measure(logits, ids, options.tokens);
  found.after = Tensor::full({std::ssize(c.layers), c.heads}, found.before, DType::f64);
  const auto told = [&](std::size_t l, const Tensor& context, const Tensor& gradient, const Tensor& values) {
    const Seen seen{c.causal, c.layers[l].window};
    add_layer(found.after.select(0, static_cast<std::int64_t>(l)), options, l, seen, context, gradient, values);
  };
  const Listening listening(model, told);
  model.backward(measure_gradient(logits, ids, options.tokens));
  return found;
}

}  // namespace attn::experiment
