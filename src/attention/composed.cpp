#include "attention/composed.hpp"

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
  Tensor q, k, v, scores, scaled, masked, weights, dropped, context;
};

Steps forward(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p, const AttentionOptions& options) {
  const DType dtype = compute_dtype(q.dtype());
  const Mask& mask = options.mask;
  Steps s;
  s.q = q.to(dtype);
  s.k = repeat_heads(k.to(dtype), p.hq);
  s.v = repeat_heads(v.to(dtype), p.hq);
  s.scores = ref::scores(s.q, s.k);
  s.scaled = ref::scale(s.scores, p.scale);
  s.masked = options.softcap > 0 ? ref::softcap(s.scaled, options.softcap) : s.scaled;
  if (mask.bias.defined()) s.masked = add_bias(s.masked, ref::saturate_to(mask.bias, dtype));
  if (mask.keep.defined()) s.masked = ref::mask_fill(s.masked, mask.keep);
  if (mask.is_causal) s.masked = ref::mask_fill(s.masked, causal_keep(p.tq, p.tk, mask.align));
  s.weights = ref::softmax(s.masked);
  s.dropped = options.dropout > 0 ? ref::dropout(s.weights, options.dropout_keep, options.dropout) : s.weights;
  s.context = ref::weighted_sum(s.dropped, s.v);
  return s;
}

void record(Trace& trace, const Steps& s, const AttentionOptions& options) {
  trace.record("queries", s.q);
  trace.record("keys", s.k);
  trace.record("values", s.v);
  trace.record("scores", s.scores);
  trace.record("scaled", s.scaled);
  if (!options.mask.empty()) trace.record("masked", s.masked);
  trace.record("weights", s.weights);
  if (options.dropout > 0) trace.record("dropped", s.dropped);
  trace.record("context", s.context);
}

}  // namespace

AttentionResult composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                   const AttentionOptions& options, Trace* trace) {
  const Steps s = forward(q, k, v, p, options);
  if (trace) record(*trace, s, options);
  return {ref::saturate_to(s.context, q.dtype()), ref::log_sum_exp(s.masked),
          options.return_weights ? s.weights : Tensor{}};
}

AttentionGradient composed_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Problem& p, const AttentionOptions& options) {
  const Steps s = forward(q, k, v, p, options);

  // context = dropped · v
  auto [d_dropped, dv] = ref::weighted_sum_backward(ref::saturate_to(d_output, s.v.dtype()), s.dropped, s.v);
  // dropped = weights · keep / (1 - p)
  const Tensor d_weights =
      options.dropout > 0 ? ref::dropout(d_dropped, options.dropout_keep, options.dropout) : d_dropped;
  // weights = softmax(masked); masking gives weights, and so gradients, of zero
  Tensor d_scaled = ref::softmax_backward(d_weights, s.weights);
  // masked = capped + bias
  const Tensor& bias = options.mask.bias;
  const Tensor d_bias = bias.defined() ? ref::saturate_to(ref::sum_to(d_scaled, bias.shape()), bias.dtype()) : Tensor{};
  // capped = softcap(scaled)
  if (options.softcap > 0) d_scaled = ref::softcap_backward(d_scaled, s.scaled, options.softcap);
  // scaled = scores · scale
  const Tensor d_scores = ref::scale(d_scaled, p.scale);
  // scores = q · kᵀ
  const auto [dq, dk] = ref::scores_backward(d_scores, s.q, s.k);
  const auto stored = [&](const Tensor& grad) { return ref::saturate_to(grad, q.dtype()); };
  return {stored(dq), stored(repeat_heads_backward(dk, p.hkv)), stored(repeat_heads_backward(dv, p.hkv)), d_bias};
}

}  // namespace attn
