#include "attention/composed.hpp"

#include <vector>

#include "attention/blocks.hpp"
#include "attention/pieces.hpp"
#include "attention/score_tiles.hpp"
#include "attn/reference.hpp"
#include "reference/elementwise.hpp"
#include "reference/sum_to.hpp"

namespace attn {
namespace {

namespace ref = reference;

// (b, hkv, t, d) → (b, hq, t, d): query head i reads key head i / (hq / hkv).
Tensor repeat_heads(const Tensor& x, std::int64_t hq) {
  const std::int64_t hkv = x.size(1);
  if (hq == hkv) return x;
  const Tensor grouped = x.unsqueeze(2).expand({x.size(0), hkv, hq / hkv, x.size(2), x.size(3)});
  return grouped.contiguous().view({x.size(0), hq, x.size(2), x.size(3)});
}

Tensor repeat_heads_backward(const Tensor& dx, std::int64_t hkv) {
  if (dx.size(1) == hkv) return dx;
  const Shape& s = dx.shape();
  return ref::sum_to(dx.view({s[0], hkv, s[1] / hkv, s[2], s[3]}), {s[0], hkv, 1, s[2], s[3]})
      .view({s[0], hkv, s[2], s[3]});
}

// s + bias, where -inf forbids whatever the score is.
Tensor add_bias(const Tensor& s, const Tensor& bias) {
  return ref::map("attention", s, bias, [](auto x, auto b) { return std::isinf(b) && b < 0 ? b : x + b; });
}

// 16-bit floats are computed in float32.
DType compute_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// The forward pass's tensors: (b, hq, t, d) and (b, hq, tq, tk).
struct Steps {
  Tensor q, k, v, scores, scaled, capped, scored, biased, alibi, masked, weights, dropped, context;
  // (b, hq, tq, tk + 1): masked and weights, with the sink as one more key where there is one.
  Tensor with_sink, all_weights;
};

bool limits_keys(const Mask& mask) {
  return mask.is_causal || mask.has_window() || mask.key_lengths.defined() || mask.query_starts.defined();
}

Tensor with_sink(const Tensor& masked, const Tensor& sinks, const Problem& p) {
  if (!sinks.defined()) return masked;
  const Tensor column = sinks.to(masked.dtype()).view({p.hq, 1, 1}).expand({p.batch, p.hq, p.tq, 1});
  return concat_last(std::vector<Tensor>{masked, column});
}

Tensor dropout_keep(const Problem& p, const AttentionOptions& options) {
  if (options.dropout == 0 || !options.dropout_key) return options.dropout_keep;
  return philox_keep(p.scores_shape(), options.dropout, *options.dropout_key);
}

Steps forward(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p, const AttentionOptions& options) {
  const DType dtype = compute_dtype(q.dtype());
  const Mask& mask = options.mask;
  Steps s;
  s.q = q.to(dtype);
  s.k = repeat_heads(k.to(dtype), p.hq);
  s.v = repeat_heads(v.to(dtype), p.hq);
  s.scores = ref::scores(s.q, s.k);
  s.scaled = ref::scale(s.scores, p.scale);
  s.capped = options.softcap > 0 ? ref::softcap(s.scaled, options.softcap) : s.scaled;
  s.scored = options.score_function ? apply_score_function(s.capped, options.score_function) : s.capped;
  s.biased = mask.bias.defined() ? add_bias(s.scored, ref::saturate_to(mask.bias, dtype)) : s.scored;
  s.alibi = options.alibi_slopes.defined() ? ref::add(s.biased, ref::saturate_to(alibi_bias(p, mask, options.alibi_slopes), dtype))
                                           : s.biased;
  s.masked = s.alibi;
  if (mask.keep.defined()) s.masked = ref::mask_fill(s.masked, mask.keep);
  if (mask.block_keep.defined()) s.masked = ref::mask_fill(s.masked, block_cells(p, mask));
  if (limits_keys(mask)) s.masked = ref::mask_fill(s.masked, seen_keys(p, mask));
  s.with_sink = with_sink(s.masked, options.sinks, p);
  s.all_weights = ref::softmax(s.with_sink);
  s.weights = s.all_weights.slice(-1, 0, p.tk);
  s.dropped = options.dropout > 0 ? ref::dropout(s.weights, dropout_keep(p, options), options.dropout) : s.weights;
  s.context = ref::weighted_sum(s.dropped, s.v);
  return s;
}

Tensor chosen_weights(const Tensor& weights, const AttentionOptions& options) {
  if (!options.return_weights) return {};
  if (!options.weight_rows.defined()) return weights.contiguous();
  Shape shape = weights.shape();
  shape[2] = options.weight_rows.numel();
  Tensor chosen = Tensor::empty(shape, weights.dtype());
  for (std::int64_t r = 0; r < shape[2]; ++r) {
    chosen.select(2, r).copy_from(weights.select(2, static_cast<std::int64_t>(options.weight_rows.at({r}))));
  }
  return chosen;
}

// The sink's weight has no value: d_sink = -w_sink · Σ_j w_j · d_weight_j. That sum is -Σ_j d_score_j, too, whose terms
// cancel.
Tensor sinks_gradient(const Steps& s, const Tensor& d_weights, const Problem& p) {
  const auto product = [](auto w, auto d) { return w == 0 ? w : w * d; };
  const Tensor means = ref::sum_to(ref::map("attention", s.weights, d_weights, product), Shape{p.batch, p.hq, p.tq, 1});
  const Tensor sink_weights = s.all_weights.slice(-1, p.tk, p.tk + 1);
  return ref::scale(ref::sum_to(ref::map("attention", sink_weights, means, product), {p.hq, 1, 1}), -1).view({p.hq});
}

void record(Trace& trace, const Steps& s, const AttentionOptions& options) {
  trace.record("queries", s.q);
  trace.record("keys", s.k);
  trace.record("values", s.v);
  trace.record("scores", s.scores);
  trace.record("scaled", s.scaled);
  if (options.softcap > 0) trace.record("capped", s.capped);
  if (options.score_function) trace.record("scored", s.scored);
  if (options.mask.bias.defined()) trace.record("biased", s.biased);
  if (options.alibi_slopes.defined()) trace.record("alibi", s.alibi);
  if (!options.mask.empty()) trace.record("masked", s.masked);
  trace.record("weights", s.weights.contiguous());
  if (options.dropout > 0) trace.record("dropped", s.dropped);
  trace.record("context", s.context);
}

}  // namespace

AttentionResult composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                   const AttentionOptions& options, Trace* trace) {
  const Steps s = forward(q, k, v, p, options);
  if (trace) record(*trace, s, options);
  return {ref::saturate_to(s.context, q.dtype()), ref::log_sum_exp(s.with_sink), chosen_weights(s.weights, options)};
}

AttentionGradient composed_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Problem& p, const AttentionOptions& options) {
  const Steps s = forward(q, k, v, p, options);

  // context = dropped · v
  auto [d_dropped, dv] = ref::weighted_sum_backward(ref::saturate_to(d_output, s.v.dtype()), s.dropped, s.v);
  // dropped = weights · keep / (1 - p)
  const Tensor d_weights =
      options.dropout > 0 ? ref::dropout(d_dropped, dropout_keep(p, options), options.dropout) : d_dropped;
  // weights = softmax(masked and sink); masking gives weights, and so gradients, of zero
  Tensor d_scaled = ref::softmax_backward(d_weights, s.weights);
  const Tensor d_sinks = options.sinks.defined() ? sinks_gradient(s, d_weights, p) : Tensor{};
  // biased = scored + bias
  const Tensor& bias = options.mask.bias;
  const Tensor d_bias = bias.defined() ? ref::saturate_to(ref::sum_to(d_scaled, bias.shape()), bias.dtype()) : Tensor{};
  // scored = score_function(capped)
  if (options.score_function) d_scaled = score_function_backward(d_scaled, s.capped, options.score_function);
  // capped = softcap(scaled)
  if (options.softcap > 0) d_scaled = ref::softcap_backward(d_scaled, s.scaled, options.softcap);
  // scaled = scores · scale
  const Tensor d_scores = ref::scale(d_scaled, p.scale);
  // scores = q · kᵀ
  const auto [dq, dk] = ref::scores_backward(d_scores, s.q, s.k);
  const auto stored = [&](const Tensor& grad) { return ref::saturate_to(grad, q.dtype()); };
  return {stored(dq), stored(repeat_heads_backward(dk, p.hkv)), stored(repeat_heads_backward(dv, p.hkv)), d_bias,
          d_sinks.defined() ? ref::saturate_to(d_sinks, options.sinks.dtype()) : d_sinks};
}

}  // namespace attn
