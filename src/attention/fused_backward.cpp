// Gradients by the fused kernels.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "attention/fused.hpp"
#include "attention/relative_bias.hpp"
#include "attention/runs.hpp"
#include "attention/special.hpp"
#include "core/subnormals.hpp"
#include "kernels/explain.hpp"
#include "reference/elementwise.hpp"

namespace attn {
namespace {

// A sink's weight has no value: d_sink = -Σ_i w_i,sink · (d_output_i · output_i).
Tensor sinks_gradient(const Sizes& p, const AttentionOptions& options, const Tensor& d_output, const Tensor& output,
                      const Tensor& lse) {
  Tensor grad = Tensor::empty({p.hq}, options.sinks.dtype());
  const Tensor d_rows = d_output.to(DType::f32).contiguous(), rows = output.to(DType::f32).contiguous();
  for (std::int64_t h = 0; h < p.hq; ++h) {
    double sum = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t i = 0; i < p.tq; ++i) {
        const std::int64_t row = (b * p.hq + h) * p.tq + i;
        double dot = 0;
        for (std::int64_t c = row * p.dv; c < (row + 1) * p.dv; ++c) {
          const auto value = static_cast<double>(rows.data<float>()[c]);
          if (value != 0) dot += static_cast<double>(d_rows.data<float>()[c]) * value;  // of hidden rows, nothing
        }
        const double log_weight = options.sinks.at({h}) - static_cast<double>(lse.data<float>()[row]);
        if (dot != 0) sum -= std::exp(log_weight) * dot;
      }
    }
    grad.set({h}, sum);
  }
  return grad;
}

struct Backward {
  kernels::BackwardInput in;
  kernels::BackwardResult result;
  Tensor by_distance;  // the scores' gradient, summed
};

// Adds to the gradient of a table of distances, if there is one.
void run_backward(std::span<const Part> parts, double operations, const std::function<Backward(const Part&)>& of,
                  const DistanceTable& distances, const Tensor& d_table) {
  Arena arena;
  Vector<kernels::BackwardPlan> plans(&arena);
  Vector<Backward> all(&arena);
  plans.reserve(parts.size()), all.reserve(parts.size());
  for (const Part& part : parts) {
    all.push_back(of(part));
    plans.push_back(kernels::plan_to_run(part.problem, all.back().result));
    if (!distances.defined()) continue;
    all.back().by_distance = distances.zeros(plans.back().chunks * part.problem.batch * part.problem.hq);
    all.back().result.distances = distances.start(all.back().by_distance);
  }
  run_plans(plans, 2.5 * operations, [&](std::size_t i, int phase, std::int64_t task, void* shared, void* scratch) {
    const ZeroSubnormals zero(may_zero_subnormals(parts[i].problem));
    plans[i].kernel->run(parts[i].problem, plans[i], all[i].in, all[i].result, phase, task, shared, scratch);
  });
  for (const Backward& part : all) {
    if (distances.defined()) distances.add_to(d_table, part.by_distance);
  }
}

// The bias's gradient (b, hq, tq, tk) from a piece's first cell on.
void add_bias(kernels::BackwardResult& result, const Tensor& d_bias, const Piece& piece) {
  result.bias_batch = d_bias.stride(0), result.bias_head = d_bias.stride(1);
  result.bias_query = d_bias.stride(2), result.bias_key = d_bias.stride(3);
  result.bias = d_bias.data<float>() + piece.batch * result.bias_batch + piece.query * result.bias_query +
                piece.key * result.bias_key;
}

// Keys behind an item's length have no part, and no gradient.
void clear_padding(const Piece& piece, const AttentionGradient& grad) {
  for (const Tensor* t : {&grad.k, &grad.v}) {
    if (piece.batches == 0 || piece.key != 0) continue;
    t->slice(0, piece.batch, piece.batch + piece.batches).slice(2, piece.tk, t->size(2)).fill(0);
  }
}

bool any_nan(const Tensor& t) {
  const Tensor numbers = t.to(DType::f32).contiguous();
  const float* first = numbers.data<float>();
  return std::any_of(first, first + numbers.numel(), [](float x) { return std::isnan(x); });
}

// A NaN of a score's gradient is in the query's, too; where a bias that rows share adds up infinities, it stays NaN.
bool has_nan(const AttentionGradient& grad) { return any_nan(grad.q) || any_nan(grad.k) || any_nan(grad.v); }

// Whether a row's weights cannot be computed from its log-sum-exp in float32.
bool has_far(const Tensor& lse) {
  const float* first = lse.data<float>();
  return std::any_of(first, first + lse.numel(), [](float x) {
    return !(std::fabs(x) <= kFarScore) && x != -std::numeric_limits<float>::infinity();
  });
}

}  // namespace

Gradients run_backward(const Call& call, const Sizes& p, const AttentionOptions& options, const Incoming& in,
                       DType dtype) {
  Gradients all{{empty_like(call.q, call.q.shape(), dtype), empty_like(call.k, call.k.shape(), dtype),
                 empty_like(call.v, call.v.shape(), dtype)}};
  AttentionGradient& grad = all.grad;
  if (options.mask.key_lengths.defined()) {
    for (const Piece& piece : call.pieces) clear_padding(piece, grad);
  }
  Tensor d_bias;  // (b, hq, tq, tk)
  if (call.bias.defined()) {
    grad.bias = Tensor::zeros(call.bias.shape());
    d_bias = grad.bias.expand(p.scores_shape());
  }
  const auto of = [&](const Part& part) {
    const Piece& at = part.piece;
    const auto queries = [&](const Tensor& t) { return rows_from(t, at.batch, at.query); };
    const auto keys = [&](const Tensor& t) { return rows_from(t, at.batch, at.key); };
    const float* own_lse = in.lse.data<float>() + at.batch * p.hq * p.tq + at.query;
    Backward own{{queries(in.output), queries(in.d_output), own_lse, p.tq},
                 {queries(grad.q), keys(grad.k), keys(grad.v), element(dtype)},
                 {}};
    if (d_bias.defined()) add_bias(own.result, d_bias, at);
    own.result.finite = &all.finite;
    return own;
  };
  const Tensor& table = options.relative_bias.table;
  if (table.defined()) grad.relative_bias = Tensor::zeros(table.shape(), DType::f64);
  if (call.bias.defined()) {  // to whose gradient several parts may add
    for (const Part& part : call.parts)
      run_backward({&part, 1}, call.operations, of, call.distances, grad.relative_bias);
  } else {
    run_backward(call.parts, call.operations, of, call.distances, grad.relative_bias);
  }
  return all;
}

AttentionGradient fused_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Sizes& p, const AttentionOptions& options,
                                           const AttentionResult& forward) {
  const Call call(q, k, v, p, options);
  const Incoming in{readable(d_output.to(q.dtype())), readable(forward.output.to(q.dtype())),
                    forward.lse.to(DType::f32).contiguous()};
  const bool far = has_far(in.lse);
  Gradients all;
  if (!far) all = run_backward(call, p, options, in, output_dtype(q, options));
  if (far || (!all.finite && has_nan(all.grad))) {
    all = {};  // its memory is free for the second
    const Tensor output = readable(reference::saturate_to(forward.output, q.dtype()));
    all.grad = gradient_again(call, p, options, {in.d_output, output, in.lse});
  }
  AttentionGradient& grad = all.grad;
  if (grad.bias.defined()) grad.bias = grad.bias.to(options.mask.bias.dtype());
  const Tensor& table = options.relative_bias.table;
  if (table.defined()) grad.relative_bias = grad.relative_bias.to(table.dtype());
  if (options.sinks.defined()) grad.sinks = sinks_gradient(p, options, in.d_output, in.output, in.lse);
  return grad;
}

}  // namespace attn
