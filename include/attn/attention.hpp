// The operator: scaled dot-product attention, softmax(mask(q · kᵀ · scale)) · v.
// Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attn/precision.hpp"
#include "attn/random.hpp"
#include "attn/score_function.hpp"
#include "attn/tensor.hpp"
#include "attn/trace.hpp"

namespace attn {

// Where the diagonal of a causal mask lies when there are more keys than queries: query i sees keys
// up to i (top_left, PyTorch's is_causal) or up to i + tk - tq (bottom_right, FlashAttention's).
enum class Align { top_left, bottom_right };

// Which keys a query may see. The parts combine: a key is seen if every part allows it.
struct Mask {
  bool is_causal = false;
  Align align = Align::top_left;  // of the causal diagonal and of the window's centre
  // Query i sees keys from centre - window_left to centre + window_right, where the centre is i (top_left) or
  // i + tk - tq (bottom_right); -1 = no limit on that side.
  std::int64_t window_left = -1, window_right = -1;
  Tensor key_lengths;  // int64 (b): batch item b has this many keys, the rest is padding; tk is then this length
  // Packed sequences: int64 (n + 1) cumulative lengths, 0 first, as FlashAttention's cu_seqlens; b must be 1.
  // Sequence s is queries [query_starts[s], query_starts[s + 1]) and keys [key_starts[s], …); none sees another.
  Tensor query_starts, key_starts;
  Tensor keep;  // boolean, true = allowed, broadcastable to (b, h, tq, tk)
  Tensor bias;  // floating, added to the scaled scores, broadcastable likewise; -inf forbids
  // Block-sparse: boolean, broadcastable to (b, h, ⌈tq / block_query⌉, ⌈tk / block_key⌉); query i sees key j if
  // [b, h, i / block_query, j / block_key] is true. A block that is not costs no time.
  Tensor block_keep;
  std::int64_t block_query = 0, block_key = 0;

  static Mask none() { return {}; }
  static Mask causal(Align align = Align::top_left);
  static Mask window(std::int64_t left, std::int64_t right, Align align = Align::top_left);
  static Mask lengths(Tensor key_lengths);
  static Mask sequences(Tensor query_starts, Tensor key_starts);
  static Mask boolean(Tensor keep);
  static Mask additive(Tensor bias);
  static Mask blocks(Tensor block_keep, std::int64_t block_query, std::int64_t block_key);
  // Throws Error (argument) when both hold the same part, or are aligned differently.
  friend Mask operator&(Mask a, const Mask& b);

  bool has_window() const noexcept { return window_left >= 0 || window_right >= 0; }
  bool empty() const noexcept;
};

std::string_view name(Precision precision) noexcept;
// "highest", "high" or "medium". Throws Error (argument) for another name.
Precision parse_precision(std::string_view text);

struct AttentionOptions {
  Mask mask = {};
  std::optional<double> scale = {};   // default 1/sqrt(d)
  double softcap = 0;                 // 0 = none; else scores become cap · tanh(scores / cap)
  ScoreFunction score_function = {};  // the user's own, after the softcap and before biases and masks
  // ALiBi (Press et al. 2022): float32 (hq) slopes; adds -slope · |centre - j|, the centre as for a window.
  Tensor alibi_slopes = {};
  // Attention sinks (Xiao et al. 2024): float32 (hq), one more score a head that takes weight but has no value.
  Tensor sinks = {};
  double dropout = 0;  // probability in [0, 1] that a weight is dropped
  // With dropout > 0 one of these: which weights are kept, boolean, broadcastable to (b, h, tq, tk); or the key of
  // philox_keep(), from which the kernels draw it without a mask in memory.
  Tensor dropout_keep = {};
  std::optional<std::uint64_t> dropout_key = {};
  Precision precision = Precision::highest;
  bool return_weights = false;
  Tensor weight_rows = {};  // int64 (n): with return_weights, only these queries' weights
};

struct AttentionResult {
  Tensor output;   // (b, hq, tq, dv)
  Tensor lse;      // (b, hq, tq) log Σ exp of the masked scores and the sink; -inf where there is nothing to sum
  Tensor weights;  // (b, hq, tq or n, tk) before dropout, if asked for
};

// q (b, hq, tq, d)  k (b, hkv, tk, d)  v (b, hkv, tk, dv): float dtypes, all the same; hq a multiple of
// hkv (query head i reads key head i / (hq / hkv)); any strides. A row whose every key is masked gives
// zeros. Given a trace, records the steps from queries to context (attn/steps.hpp) that the options ask for.
// Throws Error for shapes, dtypes or options that do not fit.
AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                          Trace* trace = nullptr);

struct AttentionGradient {
  Tensor q, k, v;
  Tensor bias;   // when options.mask.bias is defined, in its own (broadcast) shape
  Tensor sinks;  // when options.sinks is defined
};

// Gradients of attention() for d_output (b, hq, tq, dv), by the same options.
AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options = {});
// The same, without computing the forward pass again: `forward` is attention()'s result for the same inputs.
AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options, const AttentionResult& forward);

// (tq, tk) boolean: the causal mask as a tensor.
Tensor causal_keep(std::int64_t tq, std::int64_t tk, Align align = Align::top_left);

}  // namespace attn
