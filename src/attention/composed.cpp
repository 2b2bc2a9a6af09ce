#include "attention/composed.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "attention/pieces.hpp"
#include "attention/relative_bias.hpp"
#include "attention/score_tiles.hpp"
#include "attention/special.hpp"
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
  const auto add = [](auto x, auto b) { return std::isinf(b) && b < 0 ? b : x + b; };
  return ref::map("attention", s, ref::saturate_to(bias, s.dtype()), add);
}

// 16-bit floats are computed in float32.
DType compute_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// The forward pass's tensors: (b, hq, t, d) and (b, hq, tq, tk).
struct Steps {
  Tensor q, k, v, scores, scaled, capped, scored, biased, relative, alibi, masked, weights, dropped, context;
  // (b, hq, tq, tk + 1): masked and weights, with the sink as one more key where there is one; (b, hq, tq).
  Tensor with_sink, all_weights, log_sum_exp;
};

bool limits_keys(const Mask& mask) {
  return mask.is_causal || mask.has_window() || mask.key_lengths.defined() || mask.query_starts.defined();
}

// Positions of each item's first query and key, and the first head's number.
std::vector<TileStart> starts_of(const Sizes& p, const AttentionOptions& options) {
  std::vector<TileStart> starts;
  for (std::int64_t b = 0; b < p.batch; ++b)
    starts.push_back({options.query_offset.of(b), options.key_offset.of(b), options.heads.first});
  return starts;
}

Tensor with_sink(const Tensor& masked, const Tensor& sinks, const Sizes& p) {
  if (!sinks.defined()) return masked;
  const Tensor column = sinks.to(masked.dtype()).expand({masked.size(0), p.hq, p.tq, 1});
  return concat_last(std::vector<Tensor>{masked, column});
}

// The block-sparse part of a mask, cell by cell: (b or 1, hq or 1, tq, tk) boolean.
Tensor block_cells(const Sizes& p, const Mask& mask) {
  const auto size = [&](std::size_t dim, std::int64_t full) {  // 1 where the mask repeats
    const Shape& shape = mask.block_keep.shape();
    return shape.size() + dim < 4 || shape[shape.size() + dim - 4] == 1 ? std::int64_t{1} : full;
  };
  const Tensor blocks = mask.block_keep.expand(block_shape(p, mask));
  Tensor keep = Tensor::empty({size(0, p.batch), size(1, p.hq), p.tq, p.tk}, DType::boolean);
  bool* cell = keep.data<bool>();
  for (std::int64_t b = 0; b < (p.batch == 0 ? 0 : keep.size(0)); ++b) {
    for (std::int64_t h = 0; h < (p.hq == 0 ? 0 : keep.size(1)); ++h) {
      for (std::int64_t i = 0; i < p.tq; ++i) {
        const Tensor row = blocks.select(0, b).select(0, h).select(0, i / mask.block_query);
        for (std::int64_t j = 0; j < p.tk; ++j) *cell++ = row.data<bool>()[j / mask.block_key * row.stride(0)];
      }
    }
  }
  return keep;
}

Tensor masked(Tensor s, const Sizes& p, const AttentionOptions& options) {
  const Mask& mask = options.mask;
  if (mask.keep.defined()) s = ref::mask_fill(s, mask.keep);
  if (mask.block_keep.defined()) s = ref::mask_fill(s, block_cells(p, mask));
  return limits_keys(mask) ? ref::mask_fill(s, seen_keys(p, options)) : s;
}

// Only masks hide infinities and NaN of a value. Dropout, a score function and a weight that rounds to 0 do not.
struct SpecialValues {
  Tensor values;  // (b, hq, tk, dv): these alone, and 0 elsewhere; undefined where there are none
  Tensor seen;    // (b, hq, tq, tk): 1 for each key that no mask hides from the query, else 0

  SpecialValues(const Tensor& v, const Sizes& p, const AttentionOptions& options) {
    if (is_finite(v.contiguous().raw(), v.dtype(), v.numel())) return;
    values = ref::map("attention", v, [](auto x) { return std::isfinite(x) ? decltype(x){0} : x; });
    Tensor s = Tensor::zeros(p.scores_shape(), v.dtype());
    if (options.mask.bias.defined()) s = add_bias(s, options.mask.bias);
    if (options.relative_bias.table.defined()) s = add_bias(s, relative_bias(p, options));
    seen = ref::map("attention", masked(s, p, options), [](auto x) { return x == -INFINITY ? 0 : 1; });
  }

  // Makes float64 weights positive for all that a query sees beside such a value.
  Tensor above_zero(const Tensor& weights) const {
    const Tensor some = ref::map("attention", values, [](auto x) { return x == 0 ? 0 : 1; });
    Shape keys = values.shape();
    keys.back() = 1;
    const Tensor beside = ref::map("attention", seen, ref::weighted_sum(seen, ref::sum_to(some, keys)),
                                   [](auto x, auto count) { return count > 0 ? x : 0; });
    return ref::map("attention", weights, beside, [](auto w, auto here) {
      return w == 0 && here != 0 ? decltype(w){std::numeric_limits<double>::denorm_min()} : w;
    });
  }

  // Gradients of weights, of which dropout hides no infinities and NaN either.
  Tensor beside_dropped(const Tensor& kept, const Tensor& all) const {
    return ref::map("attention", kept, all, [](auto x, auto before) { return std::isfinite(before) ? x : before; });
  }
};

Tensor dropout_keep(const Sizes& p, const AttentionOptions& options) {
  if (options.dropout == 0 || !options.dropout_key) return options.dropout_keep;
  Tensor keep = Tensor::empty(p.scores_shape(), DType::boolean);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const PhiloxStart start{b, options.query_offset.of(b), options.key_offset.of(b), options.heads.first};
    keep.slice(0, b, b + 1).copy_from(philox_keep({1, p.hq, p.tq, p.tk}, options.dropout, *options.dropout_key, start));
  }
  return keep;
}

// Each step is what `trace` makes of it, where there is one.
Steps forward(const Tensor& q, const Tensor& k, const Tensor& v, const Sizes& p, const AttentionOptions& options,
              DType dtype, Trace* trace = nullptr) {
  const Mask& mask = options.mask;
  const auto step = [&](const char* name, bool taken, const Tensor& before, const auto& compute) {
    return taken ? pass(trace, name, compute()) : before;
  };
  Steps s;
  s.q = pass(trace, "queries", q.to(dtype));
  s.k = pass(trace, "keys", repeat_heads(k.to(dtype), p.hq));
  s.v = pass(trace, "values", repeat_heads(v.to(dtype), p.hq));
  s.scores = pass(trace, "scores", ref::scores(s.q, s.k));
  s.scaled = pass(trace, "scaled", ref::scale(s.scores, p.scale));
  s.capped = step("capped", options.softcap > 0, s.scaled, [&] { return ref::softcap(s.scaled, options.softcap); });
  s.scored = step("scored", static_cast<bool>(options.score_function), s.capped,
                  [&] { return apply_score_function(s.capped, options.score_function, starts_of(p, options)); });
  s.biased = step("biased", mask.bias.defined(), s.scored, [&] { return add_bias(s.scored, mask.bias); });
  s.relative = step("relative", options.relative_bias.table.defined(), s.biased,
                    [&] { return add_bias(s.biased, relative_bias(p, options)); });
  s.alibi = step("alibi", options.alibi_slopes.defined(), s.relative,
                 [&] { return ref::add(s.relative, ref::saturate_to(alibi_bias(p, options), dtype)); });
  s.masked = step("masked", !mask.empty(), s.alibi, [&] { return masked(s.alibi, p, options); });
  const Tensor sinks = options.sinks.defined() ? pass(trace, "sinks", options.sinks.view({1, p.hq, 1, 1})) : Tensor{};
  s.with_sink = with_sink(s.masked, sinks, p);
  s.all_weights = ref::softmax(s.with_sink, &s.log_sum_exp);
  s.weights = pass(trace, "weights", s.all_weights.slice(-1, 0, p.tk));
  s.dropped = step("dropped", options.dropout > 0, s.weights,
                   [&] { return ref::dropout(s.weights, dropout_keep(p, options), options.dropout); });
  s.context = ref::weighted_sum(s.dropped, s.v);
  if (const SpecialValues special(s.v, p, options); special.values.defined())
    s.context = ref::add(s.context, ref::weighted_sum(special.seen, special.values));
  s.context = pass(trace, "context", s.context);
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
Tensor sinks_gradient(const Steps& s, const Tensor& d_weights, const Sizes& p) {
  const auto product = [](auto w, auto d) { return w == 0 ? w : w * d; };
  const Tensor means = ref::sum_to(ref::map("attention", s.weights, d_weights, product), Shape{p.batch, p.hq, p.tq, 1});
  const Tensor sink_weights = s.all_weights.slice(-1, p.tk, p.tk + 1);
  return ref::scale(ref::sum_to(ref::map("attention", sink_weights, means, product), {p.hq, 1, 1}), -1).view({p.hq});
}

Tensor share_of(const Tensor& own, const Tensor& lse) {
  const double close = 16 * (lse.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23);
  return ref::map("attention_backward", own, lse.to(own.dtype()),
                  [close](auto x, auto y) { return attn::share_of(x, y, close); });
}

bool any_below_one(const Tensor& share, const Tensor& lse) {
  const Tensor a = share.to(DType::f64).contiguous(), b = lse.to(DType::f64).contiguous();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (std::isfinite(b.data<double>()[i]) && a.data<double>()[i] != 1) return true;
  }
  return false;
}

// Rows that see other keys, too, need these: their weights' factor, and Σ w · dw over all keys, d_output · output.
struct OtherKeys {
  Tensor factor, sums, lse;  // (b, hq, tq, 1), in the dtype that is computed in; undefined where there are none

  OtherKeys(const Steps& s, const Tensor& d_output, const AttentionResult* forward) {
    const DType dtype = s.v.dtype();
    if (!forward) return;
    const Tensor share = share_of(s.log_sum_exp, forward->lse);
    if (!any_below_one(share, forward->lse)) return;
    lse = ref::saturate_to(forward->lse, dtype).unsqueeze(-1);
    factor = share.unsqueeze(-1);
    const Tensor products =
        ref::map("attention_backward", ref::saturate_to(d_output, dtype), ref::saturate_to(forward->output, dtype),
                 [](auto x, auto y) { return y == 0 ? y : x * y; });  // of hidden rows, nothing
    Shape rows = products.shape();
    rows.back() = 1;
    sums = ref::sum_to(products, rows);
  }

  bool any() const { return factor.defined(); }
};

Tensor times(const Tensor& x, const Tensor& y) {
  return ref::map("attention_backward", x, y, [](auto a, auto b) { return a == 0 || b == 0 ? 0 : a * b; });
}

// The same where queries see other keys, too: d_sink = -w_sink · Σ_j w_j · dw_j over all of them.
Tensor sinks_gradient_beside(const OtherKeys& others, const AttentionOptions& options, const Sizes& p) {
  const Shape heads{p.hq, 1, 1};
  const Tensor sinks = ref::saturate_to(options.sinks, others.lse.dtype()).view(heads);
  const Tensor weights = ref::map("attention_backward", others.lse, sinks,
                                  [](auto lse, auto sink) { return std::isinf(lse) ? 0 : -std::exp(sink - lse); });
  return ref::sum_to(times(others.sums, weights), heads).view({p.hq});
}

}  // namespace

AttentionResult composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Sizes& p,
                                   const AttentionOptions& options, Trace* trace) {
  const Steps s = forward(q, k, v, p, options, compute_dtype(q.dtype()), trace);
  return {ref::saturate_to(s.context, output_dtype(q, options)), s.log_sum_exp, chosen_weights(s.weights, options)};
}

AttentionGradient composed_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Sizes& p, const AttentionOptions& options,
                                              const AttentionResult* whole) {
  // In float64, where no step ends at float32's largest: a gradient that leaves its dtype's range is infinite.
  Steps s = forward(q, k, v, p, options, DType::f64);
  const OtherKeys others(s, d_output, whole);
  if (others.any()) s.weights = times(s.weights, others.factor), s.dropped = times(s.dropped, others.factor);

  const SpecialValues special(s.v, p, options);
  if (special.values.defined()) s.weights = special.above_zero(s.weights);

  // context = dropped · v
  auto [d_dropped, dv] = ref::weighted_sum_backward(d_output.to(DType::f64), s.dropped, s.v);
  // dropped = weights · keep / (1 - p)
  Tensor d_weights = d_dropped;
  if (options.dropout > 0) d_weights = ref::dropout(d_dropped, dropout_keep(p, options), options.dropout);
  if (special.values.defined()) d_weights = special.beside_dropped(d_weights, d_dropped);
  // weights = softmax(masked and sink); masking gives weights, and so gradients, of zero. From here on this is the
  // gradient of the scores as each earlier step had them.
  Tensor d_scores =
      others.any() ? times(ref::map("attention_backward", d_weights, others.sums, [](auto x, auto y) { return x - y; }),
                           s.weights)
                   : ref::softmax_backward(d_weights, s.weights);
  const Tensor d_sinks = !options.sinks.defined() ? Tensor{}
                         : others.any()           ? sinks_gradient_beside(others, options, p)
                                                  : sinks_gradient(s, d_weights, p);
  // biased = scored + bias
  const Tensor& bias = options.mask.bias;
  const Tensor d_bias = bias.defined() ? ref::sum_to(d_scores, bias.shape()).to(bias.dtype()) : Tensor{};
  // relative = biased + bias of the distance
  const Tensor& table = options.relative_bias.table;
  const Tensor d_table = table.defined() ? relative_bias_gradient(p, options, d_scores).to(table.dtype()) : Tensor{};
  // scored = score_function(capped)
  if (options.score_function)
    d_scores = score_function_backward(d_scores, s.capped, options.score_function, starts_of(p, options));
  // capped = softcap(scaled)
  if (options.softcap > 0) d_scores = ref::softcap_backward(d_scores, s.scaled, options.softcap);
  // scaled = scores · scale
  d_scores = ref::scale(d_scores, p.scale);
  // scores = q · kᵀ
  const auto [dq, dk] = ref::scores_backward(d_scores, s.q, s.k);
  const auto stored = [&](const Tensor& grad) { return grad.to(output_dtype(q, options)); };
  return {stored(dq),
          stored(repeat_heads_backward(dk, p.hkv)),
          stored(repeat_heads_backward(dv, p.hkv)),
          d_bias,
          d_sinks.defined() ? d_sinks.to(options.sinks.dtype()) : d_sinks,
          d_table};
}

}  // namespace attn
