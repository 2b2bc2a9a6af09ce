// Attention beyond softmax: a state of fixed size takes the place of all earlier keys and values.
#pragma once

#include <cstdint>
#include <optional>

#include "attn/tensor.hpp"

namespace attn {

// How a token changes the state S (d_k, d_v), after S ← exp(decay) · S:
//   plain  S ← S + k vᵀ                         linear attention (Katharopoulos et al. 2020)
//   delta  S ← S + k δᵀ, δ = beta (v − Sᵀ k)    the delta rule (Schlag et al. 2021; Yang et al. 2024)
// Then o = scale · Sᵀ q. The delta rule first takes away what S recalls for k: with |k| = 1 and beta = 1 it overwrites.
enum class StateRule { plain, delta };

// Which of few heads belongs to head i of many: i / (many / few), or i mod few, as GGUF files order Qwen's value heads.
enum class HeadMap { grouped, tiled };

// The field has these names for forms of this operator:
//   RetNet, Lightning      plain, one constant decay a head
//   GLA                    plain, decay by channel
//   Mamba-2                plain, q = C, k = B, v = dt · x, decay = dt · A, scale 1
//   DeltaNet               delta
//   Gated DeltaNet         delta, decay by head
//   Kimi Delta Attention   delta, decay by channel
// Katharopoulos's normaliser is the output for one more column of v that is all ones, for q and k after the feature
// map elu + 1; the other columns are divided by it. RWKV-7's rule is another one and is not computed.
struct LinearAttentionOptions {
  StateRule rule = StateRule::plain;
  std::optional<double> scale = {};  // default 1/sqrt(d_k); 0, or of magnitude from 2^-100 to 2^100
  HeadMap heads = HeadMap::grouped;
  // The logarithm of what a state keeps, for each token: (b, hv, t), or (b, hv, t, d_k) for each row of the state. Not
  // above 0 in any of the models above, though nothing refuses it; -inf forgets all. What several tokens keep is
  // multiplied before it meets the state, and less than 2^-126 is nothing. Default: 0, nothing is forgotten.
  Tensor decay = {};
  Tensor beta = {};           // (b, hv, t), the delta rule's write strength; default 1
  Tensor initial_state = {};  // (n, hv, d_k, d_v), n states, as the result's; default zeros
  // int64 (b): batch item i has this many tokens, and the rest is padding, which is not read: its outputs and gradients
  // are zero, and the final state is the one before it.
  Tensor lengths = {};
  // int64 (n + 1), packed sequences in a batch of 1: cumulative lengths, 0 first, as FlashAttention's cu_seqlens. Each
  // sequence has a state of its own.
  Tensor starts = {};
};

struct LinearAttentionResult {
  Tensor output;  // (b, max(hq, hv), t, d_v), of q's dtype
  Tensor state;   // (n, hv, d_k, d_v) after the last token, float32, or float64 of float64; n is b, or the sequences
};

// Shapes are q (b, hq, t, d_k), k (b, hk, t, d_k) and v (b, hv, t, d_v) of one floating dtype and any strides; d_k and
// d_v >= 1, t >= 0. There is one state a value head: hk divides hv, and hq divides hv or is a multiple of it, in which
// case hq / hv query heads read each state. decay, beta and initial_state are of floating dtypes.
// 16-bit inputs are widened, and the state is float32. Float64 is computed token by token in plain loops.
// A sequence's bits do not depend on threads or on what else is in the batch. A text in pieces, each but the last of a
// multiple of four tokens and each with the state of the one before, has the bits of the whole. On AMX, bfloat16 without
// a decay by channel goes by chunks of 32 tokens: such pieces have the bits of the whole where each but the last has a
// multiple of 32 and the last at least 16, and others are within float32's rounding of it; numbers of a state below
// 2^-102 lose bits there (attn/precision.hpp). Infinities and NaN reach what follows them in their own head and
// sequence, and nothing else. Nothing is clamped: keys that are not normalised
// can make the delta rule's state grow past float32's range.
// Throws Error for shapes, dtypes or options that do not fit.
LinearAttentionResult linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const LinearAttentionOptions& options = {});

struct LinearAttentionGradient {
  Tensor q, k, v;        // of q's dtype
  Tensor decay, beta;    // where they are given, of their shapes; float32, or float64 of float64
  Tensor initial_state;  // where it is given, as decay
};

// The gradients of linear_attention() for d_output, of the output's shape, and d_state, of the final state's, which may
// be undefined: nothing is made of that state. By chunks of 32 tokens, in memory for one state a chunk of a head, or
// less where texts are long (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence
// Length", section 3). A decay of -inf has the gradient 0. Infinities and NaN may reach all gradients of their head and
// sequence.
LinearAttentionGradient linear_attention_backward(const Tensor& d_output, const Tensor& d_state, const Tensor& q,
                                                  const Tensor& k, const Tensor& v,
                                                  const LinearAttentionOptions& options = {});

}  // namespace attn
