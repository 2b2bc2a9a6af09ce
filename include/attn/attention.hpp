// The operator: scaled dot-product attention, softmax(mask(q · kᵀ · scale)) · v.
// Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "attn/precision.hpp"
#include "attn/random.hpp"
#include "attn/relative_bias.hpp"
#include "attn/score_function.hpp"
#include "attn/tensor.hpp"
#include "attn/trace.hpp"

namespace attn {

// Where the diagonal of a causal mask lies when there are more keys than queries: query i sees keys
// up to i (top_left, PyTorch's is_causal) or up to i + tk - tq (bottom_right, FlashAttention's).
enum class Align { top_left, bottom_right };

// Which keys a query may see. A key is seen if every part of the mask allows it.
struct Mask {
  bool is_causal = false;
  Align align = Align::top_left;  // of the causal diagonal and of the window's centre
  // Query i sees keys from centre - window_left to centre + window_right, where the centre is i (top_left) or
  // i + tk - tq (bottom_right); -1 = no limit on that side.
  std::int64_t window_left = -1, window_right = -1;
  Tensor key_lengths = {};  // int64 (b): batch item b has this many keys, the rest is padding; tk is then this length
  // Packed sequences: int64 (n + 1) cumulative lengths, 0 first, as FlashAttention's cu_seqlens; b must be 1.
  // Sequence s is queries [query_starts[s], query_starts[s + 1]) and keys [key_starts[s], …); none sees another.
  Tensor query_starts = {}, key_starts = {};
  Tensor keep = {};  // boolean, true = allowed, broadcastable to (b, h, tq, tk)
  Tensor bias = {};  // floating, added to the scaled scores, broadcastable likewise; -inf forbids
  // Block-sparse: boolean, broadcastable to (b, h, ⌈tq / block_query⌉, ⌈tk / block_key⌉); query i sees key j if
  // [b, h, i / block_query, j / block_key] is true. A block that is not costs no time.
  Tensor block_keep = {};
  std::int64_t block_query = 0, block_key = 0;

  static Mask none() { return {}; }
  static Mask causal(Align align = Align::top_left);
  static Mask window(std::int64_t left, std::int64_t right, Align align = Align::top_left);
  // These throw Error (argument) without a tensor.
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

// Where the first token of a piece stands in its sequence, from 0 to 2^30. It is one position for every batch item, or
// int64 (b), one for each.
class Offset {
 public:
  Offset() = default;                                        // none given
  Offset(std::int64_t position) : all_(position) {}          // NOLINT: implicit
  Offset(Tensor positions) : each_(std::move(positions)) {}  // NOLINT: implicit

  bool given() const noexcept { return all_.has_value() || each_.defined(); }
  const Tensor& each() const noexcept { return each_; }  // undefined where one position is every item's
  // The position of item b of a batch, and 0 where none was given. Throws Error (argument) for an item that has none of
  // its own where each has.
  std::int64_t of(std::int64_t b) const;

 private:
  std::optional<std::int64_t> all_;
  Tensor each_;
};

// Tells that a call has only some of a layer's query heads, with their key heads: the number of the first, and how many
// there are in all (0: no others). The call then has the bits of the call of all heads.
struct HeadRange {
  std::int64_t first = 0, all = 0;
};

struct AttentionOptions {
  Mask mask = {};
  std::optional<double> scale = {};  // default 1/sqrt(d); 0, or of magnitude at least 2^-100 and softcap / 2^110
  double softcap = 0;                // 0 = none; from 2^-64 to 2^64, scores become cap · tanh(scores / cap)
  ScoreFunction score_function = {.owner = {}};  // the user's own, after the softcap and before biases and masks
  // ALiBi (Press et al. 2022): floating (hq) slopes; adds -slope · |centre - j|, the centre as for a window.
  Tensor alibi_slopes = {};
  RelativeBias relative_bias = {.table = {}};  // by buckets of distances, learned
  // Attention sinks (Xiao et al. 2024): floating (hq), one more score a head that takes weight but has no value.
  Tensor sinks = {};
  double dropout = 0;  // probability in [0, 1] that a weight is dropped
  // With dropout > 0 one of these: which weights are kept, boolean, broadcastable to (b, h, tq, tk); or the key of
  // philox_keep(), from which the kernels draw it without a mask in memory.
  Tensor dropout_keep = {};
  std::optional<std::uint64_t> dropout_key = {};
  // For q or k, v that are a piece of a longer sequence: the positions of their first tokens, 0 where only the other
  // is given. Causal masks, windows and biases by distance then compare positions, in place of mask.align, which must
  // be top_left: query i stands at key i + query_offset - key_offset. Dropout's counters and score functions see
  // positions, too. Other parts of a mask, and dropout_keep, are those of the piece. Positions in packed sequences are
  // counted through the whole tensors, which must be packed alike for queries and keys.
  Offset query_offset = {}, key_offset = {};
  // Dropout's counters and score functions know heads by these numbers. Slopes, sinks, biases and masks are those of
  // the heads that are here.
  HeadRange heads = {};
  Precision precision = Precision::highest;
  // The dtype of the output and of the gradients of q, k and v: q's unless given. 16-bit inputs may have float32
  // results, which pieces need before they are merged or added.
  std::optional<DType> output_dtype = {};
  bool return_weights = false;
  Tensor weight_rows = {};  // int64 (n): with return_weights, only these queries' weights
};

struct AttentionResult {
  Tensor output = {};   // (b, hq, tq, dv)
  Tensor lse = {};      // (b, hq, tq) log Σ exp of the masked scores and the sink; -inf where there is nothing to sum
  Tensor weights = {};  // (b, hq, tq or n, tk) before dropout, if asked for
};

// Shapes are q (b, hq, tq, d), k (b, hkv, tk, d) and v (b, hkv, tk, dv), d >= 1, of one floating dtype and any strides.
// hq is a multiple of hkv; query head i reads key head i / (hq / hkv). A fully masked query returns zeros. Masked keys
// and values are as if they were not there, whatever they hold. Finite inputs give no NaN: a result that leaves its
// dtype's range becomes that dtype's largest number, and so does a product q · k of float64 before it is
// scaled. With a trace it records the steps (attn/steps.hpp) from queries to context that the options ask for, and
// "sinks". Throws Error for shapes, dtypes or options that do not fit.
AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                          Trace* trace = nullptr);

// Merges the results of the same queries over pieces of the keys that do not overlap. All are of one dtype and shape
// (…, dv), with log-sum-exps (…). Parts are weighed by exp of these and summed in float64, in their order. A part whose
// log-sum-exp is -inf counts for nothing, and rows where all are -inf become zeros. Sinks belong to one piece alone.
// The dtype is that of the parts unless given.
AttentionResult merge(std::span<const Tensor> outputs, std::span<const Tensor> lses, std::optional<DType> dtype = {});

struct AttentionGradient {
  Tensor q = {}, k = {}, v = {};
  Tensor bias = {};           // when options.mask.bias is defined, in its own (broadcast) shape
  Tensor sinks = {};          // when options.sinks is defined
  Tensor relative_bias = {};  // of the table, when it is defined
};

// The gradients of attention() for d_output (b, hq, tq, dv), with the same options. A gradient that leaves its dtype's
// range is infinite, or NaN where sums on the way to it are NaN. Infinities and NaN of the inputs reach the gradients
// of what their queries see, but for a key whose score is -inf: it has no weight, and gives its query no gradient.
AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options = {});
// The same, without computing the forward pass again: `forward` is attention()'s result for the same inputs. Where k
// and v are one piece of the keys, `forward` is the merged result of all pieces, and the pieces' dq add up to the
// whole's.
AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options, const AttentionResult& forward);

// The causal mask as a boolean tensor (tq, tk).
Tensor causal_keep(std::int64_t tq, std::int64_t tk, Align align = Align::top_left);

}  // namespace attn
