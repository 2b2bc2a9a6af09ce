// The feed-forward part of a block, and its activations.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attn/module.hpp"

namespace attn {

// silu(x) is x · σ(x), sigmoid(x) is σ(x). GELU (Hendrycks & Gimpel 2016), x · Φ(x), comes exactly, and as GPT-2 has it
// (gelu_tanh): 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))).
enum class Activation { silu, gelu_tanh, gelu, sigmoid };

// GELU of float32 or bfloat16, in one of its two forms. The gradient has x's dtype.
Tensor gelu(const Tensor& x, Activation form = Activation::gelu_tanh);
Tensor gelu_backward(const Tensor& dy, const Tensor& x, Activation form = Activation::gelu_tanh);

// Returns activation(gate) · up, element by element. Both are float32 or both bfloat16, and of one shape.
Tensor gated(const Tensor& gate, const Tensor& up, Activation activation);
struct GatedGradient {
  Tensor gate = {}, up = {};
};
GatedGradient gated_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, Activation activation);

struct FeedForwardConfig {
  std::int64_t width = 0;
  std::int64_t inner_width = 0;  // 0 = 4 · width
  Activation activation = Activation::gelu_tanh;
  bool gated = false;
  bool has_bias = true;
  Precision precision = Precision::highest;
};

// These are the names of its layers in files.
struct FeedForwardNames {
  std::string_view gate = {}, up = {}, down = {};
};

// Computes down(gelu(up(x))), or with a gate down(activation(gate(x)) · up(x)), the gated linear units of Shazeer 2020.
class FeedForward : public Module {
 public:
  // Its weights are zeros, for the caller to load or draw. Throws Error (argument) for silu or sigmoid without a gate.
  explicit FeedForward(const FeedForwardConfig& config, std::string_view prefix = {},
                       const FeedForwardNames& names = {"gate_proj", "up_proj", "down_proj"});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  using Module::backward;
  Tensor backward(const Tensor& dy, const Tensor& x);  // for the x of the last forward pass
  std::vector<Parameter*> parameters() override;

  std::optional<Linear> gate;
  Linear up, down;

 private:
  Tensor active() const;

  Activation activation_;
  Tensor gate_, up_, active_;  // of the last forward pass; gelu(up) where bfloat16, else it is computed again
};

}  // namespace attn
