// The operator: scaled dot-product attention, softmax(mask(q · kᵀ · scale)) · v.
// Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
#pragma once

#include <cstdint>
#include <optional>

#include "attn/random.hpp"
#include "attn/tensor.hpp"
#include "attn/trace.hpp"

namespace attn {

// Where the diagonal of a causal mask lies when there are more keys than queries: query i sees keys
// up to i (top_left, PyTorch's is_causal) or up to i + tk - tq (bottom_right, FlashAttention's).
enum class Align { top_left, bottom_right };

// Which keys a query may see. The parts combine: a key is seen if every part allows it.
struct Mask {
  bool is_causal = false;
  Align align = Align::top_left;
  Tensor keep;  // boolean, true = allowed, broadcastable to (b, h, tq, tk)
  Tensor bias;  // floating, added to the scaled scores, broadcastable likewise; -inf forbids

  static Mask none() { return {}; }
  static Mask causal(Align align = Align::top_left);
  static Mask boolean(Tensor keep);
  static Mask additive(Tensor bias);
  friend Mask operator&(Mask a, const Mask& b);  // throws Error when both hold the same part

  bool empty() const noexcept { return !is_causal && !keep.defined() && !bias.defined(); }
};

struct AttentionOptions {
  Mask mask = {};
  std::optional<double> scale = {};  // default 1/sqrt(d)
  double softcap = 0;                // 0 = none; else scores become cap · tanh(scores / cap)
  double dropout = 0;                // probability in [0, 1] that a weight is dropped
  Tensor dropout_keep = {};          // boolean (b, h, tq, tk); required when dropout > 0
  bool return_weights = false;
};

struct AttentionResult {
  Tensor output;   // (b, hq, tq, dv)
  Tensor lse;      // (b, hq, tq) log Σ exp of the masked scores; -inf where every key is masked
  Tensor weights;  // (b, hq, tq, tk) before dropout, if asked for
};

// q (b, hq, tq, d)  k (b, hkv, tk, d)  v (b, hkv, tk, dv): float dtypes, all the same; hq a multiple of
// hkv (query head i reads key head i / (hq / hkv)); any strides. A row whose every key is masked gives
// zeros. Given a trace, records queries, keys, values, scores, scaled, masked, weights, dropped, context.
// Throws Error for shapes, dtypes or options that do not fit.
AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                          Trace* trace = nullptr);

struct AttentionGradient {
  Tensor q, k, v, bias;
};

// Gradients of attention() for d_output (b, hq, tq, dv), by the same options; bias is filled when
// options.mask.bias is defined, in the bias's own (broadcast) shape.
AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options = {});

// (tq, tk) boolean: the causal mask as a tensor.
Tensor causal_keep(std::int64_t tq, std::int64_t tk, Align align = Align::top_left);

}  // namespace attn
