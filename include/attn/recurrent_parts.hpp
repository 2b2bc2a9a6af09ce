// The parts that stand around linear attention in models: a short convolution before it, queries and keys of length 1,
// and a norm with a gate after it.
#pragma once

#include <cstdint>
#include <string_view>

#include "attn/feed_forward.hpp"
#include "attn/norm.hpp"
#include "attn/tensor.hpp"

namespace attn {

struct ConvolutionOptions {
  Tensor bias = {};           // (c)
  bool silu = false;          // of the sum
  Tensor initial_state = {};  // (n, c, k - 1), the tokens before the first, as the result's; default zeros
  // int64 (b) and int64 (n + 1), as LinearAttentionOptions has them.
  Tensor lengths = {};
  Tensor starts = {};
};

struct ConvolutionResult {
  Tensor output;  // (b, t, c), of x's dtype; 0 for padding
  Tensor state;   // (n, c, k - 1), of x's dtype: the last inputs, for the tokens that follow
};

// Causal convolution of each channel by itself (Gu & Dao 2023, "Mamba", section 3.4), by a weight whose last number
// acts on the token itself:
//   y[t, c] = act(bias[c] + Σ_j weight[c, j] · x[t - (k - 1) + j, c])
// x (b, t, c) and weight (c, k), k from 1 to 8, are of floating dtypes and any strides. 16-bit numbers are widened, and
// float64 is computed as such. A text in pieces, each with the state of the one before, has the bits of the whole.
// Throws Error for shapes and dtypes that do not fit.
ConvolutionResult causal_convolution(const Tensor& x, const Tensor& weight, const ConvolutionOptions& options = {});

struct ConvolutionGradient {
  Tensor x;                            // of x's dtype
  Tensor weight, bias, initial_state;  // the last two where they are given; float32, or float64 of float64
};

// Takes d_output, of the output's shape, and d_state, of the state's, which may be undefined.
ConvolutionGradient causal_convolution_backward(const Tensor& d_output, const Tensor& d_state, const Tensor& x,
                                                const Tensor& weight, const ConvolutionOptions& options = {});

// Rows of length 1, over the last dimension, in float32: x / √(Σ x² + ε). Delta rules take such queries and keys.
Tensor l2_norm(const Tensor& x, double epsilon = 1e-6);
Tensor l2_norm_backward(const Tensor& dy, const Tensor& x, double epsilon = 1e-6);

// RMSNorm with a gate beside it: before_gate is norm(x) · act(gate) (Gated DeltaNet by silu, Kimi Linear by sigmoid),
// and after_gate is norm(x · act(gate)) (Mamba-2).
enum class GatedNormOrder { before_gate, after_gate };

class GatedNorm {
 public:
  GatedNorm(std::int64_t width, double epsilon, std::string_view name = {}, Activation activation = Activation::silu,
            GatedNormOrder order = GatedNormOrder::before_gate)
      : norm(NormForm::rms, width, epsilon, name), activation_(activation), order_(order) {}

  // x and gate (…, width), float32 of one shape.
  Tensor forward(const Tensor& x, const Tensor& gate);
  struct Gradient {
    Tensor x, gate;
  };
  Gradient backward(const Tensor& dy);  // of the last forward pass, whose x and gate must be unchanged

  Norm norm;

 private:
  Activation activation_;
  GatedNormOrder order_;
  Tensor x_, gate_;
};

}  // namespace attn
