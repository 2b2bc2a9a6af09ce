// The language model again, in double and without haste: what the tests differentiate by finite differences.
#pragma once

#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "attn/gpt.hpp"
#include "attn/reference.hpp"
#include "core/testing.hpp"

namespace attn::test {

namespace ref = reference;

inline Tensor map_double(const Tensor& x, const std::function<double(double)>& f) {
  Tensor y = x.to(DType::f64).clone();
  for (std::int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = f(y.data<double>()[i]);
  return y;
}

inline Tensor layer_norm_double(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  Tensor y = x.clone();
  const std::int64_t width = x.size(-1);
  for (double* row = y.data<double>(); row != y.data<double>() + y.numel(); row += width) {
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < width; ++j) mean += row[j] / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) variance += (row[j] - mean) * (row[j] - mean) / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) {
      row[j] = (row[j] - mean) / std::sqrt(variance + epsilon) * weight.data<double>()[j] + bias.data<double>()[j];
    }
  }
  return y;
}

inline Tensor gelu_double(const Tensor& x, Activation form) {
  return map_double(x, [form](double v) {
    if (form == Activation::gelu) return v * 0.5 * std::erfc(-v / std::numbers::sqrt2);
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
  });
}

inline double cross_entropy_double(const Tensor& logits, const Tensor& targets) {
  const std::int64_t vocab = logits.size(-1);
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < targets.numel(); ++row) {
    const std::int64_t target = targets.data<std::int64_t>()[row];
    if (target == -100) continue;
    const double* x = logits.data<double>() + row * vocab;
    double total = 0;
    for (std::int64_t j = 0; j < vocab; ++j) total += std::exp(x[j]);
    sum += std::log(total) - x[target];
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

// A GPT's weights in double, by name, and its loss in eval mode.
class DoubleGPT {
 public:
  explicit DoubleGPT(GPT& model) : config_(model.config()) {
    for (const Parameter* p : model.parameters()) weights.emplace(p->name, p->value.to(DType::f64));
  }

  Tensor logits(const Tensor& ids) const {
    const std::int64_t b = ids.size(0), t = ids.size(1), width = config_.width;
    Tensor x = Tensor::empty({b, t, width}, DType::f64);
    for (std::int64_t i = 0; i < b * t * width; ++i) {
      const std::int64_t row = i / width, token = ids.data<std::int64_t>()[row];
      x.data<double>()[i] = w("wte.weight").data<double>()[token * width + i % width] +
                            w("wpe.weight").data<double>()[row % t * width + i % width];
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string h = "h." + std::to_string(layer) + ".";
      const Tensor a = norm(h + "ln_1", x);
      const auto heads = [&](const char* name) {
        return ref::split_heads(linear(h + "attn." + name, a), config_.heads);
      };
      const double scale = 1 / std::sqrt(static_cast<double>(width / config_.heads));
      const Tensor scores = ref::scale(ref::scores(heads("W_query"), heads("W_key")), scale);
      const Tensor shown = ref::softmax(ref::mask_fill(scores, causal_keep(t, t)));
      x = ref::add(x, linear(h + "attn.out_proj", ref::merge_heads(ref::weighted_sum(shown, heads("W_value")))));
      const Tensor inner = gelu_double(linear(h + "mlp.c_fc", norm(h + "ln_2", x)), config_.gelu);
      x = ref::add(x, linear(h + "mlp.c_proj", inner));
    }
    return ref::project(norm("ln_f", x), w(config_.tied ? "wte.weight" : "lm_head.weight"));
  }

  double loss(const Tensor& ids, const Tensor& targets) const { return cross_entropy_double(logits(ids), targets); }

  std::map<std::string, Tensor> weights;

 private:
  const Tensor& w(const std::string& name) const { return weights.at(name); }
  Tensor linear(const std::string& name, const Tensor& x) const {
    return ref::project(x, w(name + ".weight"), w(name + ".bias"));
  }
  Tensor norm(const std::string& name, const Tensor& x) const {
    return layer_norm_double(x, w(name + ".weight"), w(name + ".bias"), config_.epsilon);
  }

  GPTConfig config_;
};

}  // namespace attn::test
