#include "attention/fused.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "attention/blocks.hpp"
#include "attention/composed.hpp"
#include "attention/element.hpp"
#include "attention/row.hpp"
#include "core/parallel.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "random/philox.hpp"

namespace attn {
namespace {

kernels::Rows rows(const Tensor& t) { return {t.raw(), t.stride(0), t.stride(1), t.stride(2)}; }

// Unit stride in the last dimension, as the kernels read; one element long has any.
Tensor readable(const Tensor& t) { return t.size(-1) == 1 || t.stride(-1) == 1 ? t : t.contiguous(); }

// Without a value, (b, h, t, d); tokens before heads in memory where `like` has them so, that is, where it was split
// from projections: heads then merge without a copy.
Tensor empty_like(const Tensor& like, const Shape& shape) {
  if (like.stride(1) >= like.stride(2) || shape[1] == 1) return Tensor::empty(shape, like.dtype());
  return Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, like.dtype()).transpose(1, 2);
}

template <class T>
kernels::Grid<T> grid(const Tensor& t, const Shape& shape) {
  if (!t.defined()) return {};
  const Tensor all = t.expand(shape);
  return {all.data<T>(), all.stride(0), all.stride(1), all.stride(2), all.stride(3)};
}

// Rows whose scores or sums left float32's range show it: their log-sum-exp is not finite, though they see keys.
// The reference, which sums in double, computes those again. A row at a time, so that memory stays linear in tk.
// composed(b, h, i) is such a row.
template <class Row>
void mend_overflow(const Problem& p, const Mask& mask, const Positions& at_keys, AttentionResult& result,
                   Row&& composed) {
  const auto* lse = result.lse.data<float>();
  const auto good = [&](std::int64_t at) {
    if (std::isfinite(lse[at])) return true;
    if (lse[at] != -std::numeric_limits<float>::infinity()) return false;
    const std::int64_t b = at / (p.hq * p.tq), i = at % p.tq;
    const std::size_t place = at_keys.index(p, b, i);
    return !sees_block(p, mask, b, at / p.tq % p.hq, i, at_keys.first[place], at_keys.last[place]);
  };
  for (std::int64_t at = 0; at < result.lse.numel(); ++at) {
    if (good(at)) continue;
    const std::int64_t b = at / (p.hq * p.tq), h = at / p.tq % p.hq, i = at % p.tq;
    const AttentionResult exact = composed(b, h, i);
    result.output.select(0, b).select(0, h).select(0, i).copy_from(exact.output.view({p.dv}));
    result.lse.data<float>()[at] = exact.lse.data<float>()[0];
  }
}

// Of options.weight_rows.
template <class Row>
Tensor weights_of_rows(const Problem& p, const AttentionOptions& options, Row&& composed) {
  const std::int64_t n = options.weight_rows.numel();
  Tensor weights = Tensor::empty({p.batch, p.hq, n, p.tk});
  for (std::int64_t at = 0; p.tk != 0 && at < p.batch * p.hq * n; ++at) {
    const std::int64_t b = at / n / p.hq, h = at / n % p.hq;
    const auto i = static_cast<std::int64_t>(options.weight_rows.at({at % n}));
    weights.select(0, b).select(0, h).select(0, at % n).copy_from(composed(b, h, i).weights.view({p.tk}));
  }
  return weights;
}

}  // namespace

bool can_fuse(const Tensor& q, const AttentionOptions& options) {
  const bool all_weights = options.return_weights && !options.weight_rows.defined();
  return q.dtype() != DType::f64 && !all_weights && options.dropout < 1;
}

namespace {

// A call as the kernels take it, with the tensors that its pointers look into.
struct Call {
  Tensor q, k, v, bias, slopes, sinks;
  Positions at_keys;
  kernels::Problem problem{};
  double operations;

  Call(const Tensor& query, const Tensor& key, const Tensor& value, const Problem& p, const AttentionOptions& options)
      : Call(query, p, options) {
    k = readable(key), v = readable(value);
    problem.k = rows(k), problem.v = rows(v);
  }

  // Without keys and values.
  Call(const Tensor& query, const Problem& p, const AttentionOptions& options)
      : q(readable(query)), at_keys(positions(p, options.mask)) {
    if (options.mask.bias.defined()) bias = options.mask.bias.to(DType::f32);
    problem.batch = p.batch, problem.hq = p.hq, problem.hkv = p.hkv;
    problem.tq = p.tq, problem.tk = p.tk, problem.d = p.d, problem.dv = p.dv;
    problem.element = element(q.dtype());
    problem.q = rows(q);
    problem.scale = static_cast<float>(p.scale);
    problem.softcap = static_cast<float>(options.softcap);
    problem.first = at_keys.first, problem.last = at_keys.last;
    problem.interval_batch = at_keys.per_batch ? p.tq : 0;
    problem.keep = grid<bool>(options.mask.keep, p.scores_shape());
    problem.bias = grid<float>(bias, p.scores_shape());
    if (options.mask.block_keep.defined()) {
      problem.blocks = grid<bool>(options.mask.block_keep, block_shape(p, options.mask));
      problem.block_query = options.mask.block_query, problem.block_key = options.mask.block_key;
    }
    problem.score_forward = options.score_function.forward;
    problem.score_backward = options.score_function.backward;
    problem.score_user = options.score_function.user;
    problem.dropout_keep = options.dropout > 0 && !options.dropout_key
                               ? grid<bool>(options.dropout_keep, p.scores_shape())
                               : kernels::Grid<bool>{};
    problem.dropout_factor = static_cast<float>(1 / (1 - options.dropout));
    if (options.dropout > 0 && options.dropout_key) {
      problem.dropout_key = *options.dropout_key;
      problem.dropout_threshold = static_cast<std::uint32_t>(philox_threshold(options.dropout));
    }
    problem.precision = precision(options.precision);
    const std::int64_t left = options.mask.window_left, right = options.mask.is_causal ? 0 : options.mask.window_right;
    if (left >= 0 && right >= 0) problem.window = std::min(left, p.tk) + std::min(right, p.tk) + 1;
    if (options.alibi_slopes.defined()) {
      slopes = options.alibi_slopes.to(DType::f32).contiguous();
      problem.alibi_slopes = slopes.data<float>();
      problem.centre = at_keys.centre;
    }
    if (options.sinks.defined()) {
      sinks = options.sinks.to(DType::f32).contiguous();
      problem.sinks = sinks.data<float>();
    }
    operations =
        2.0 * static_cast<double>(p.batch * p.hq * p.tq) * static_cast<double>(p.tk) * static_cast<double>(p.d + p.dv);
  }
};

void run_forward(const Call& call, const kernels::ForwardResult& out) {
  const kernels::Problem& problem = call.problem;
  const kernels::ForwardPlan plan = kernels::plan(problem, kernels::active());
  const CallMemory shared(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    parallel_for(plan.tasks[phase], plan.scratch, call.operations, [&](std::int64_t task, void* scratch) {
      plan.kernel->run(problem, plan, out, phase, task, shared.get(), scratch);
    });
  }
}

// Of float32, in any dense layout. All bits of the exponent are set in infinities and NaN; as signed integers, whose
// largest the compiler finds a vector at a time.
bool all_finite(const Tensor& x) {
  constexpr std::int32_t exponent = 0x7f800000;
  const auto* p = static_cast<const std::uint32_t*>(x.raw());
  std::atomic<bool> finite{true};
  for_runs(x.numel(), 1, [&](std::int64_t first, std::int64_t count) {
    std::int32_t most = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      most = std::max(most, static_cast<std::int32_t>(p[i] & exponent));
    }
    if (most == exponent) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

// A sink's weight has no value: d_sink = -Σ_i w_i,sink · (d_output_i · output_i).
Tensor sinks_gradient(const Problem& p, const AttentionOptions& options, const Tensor& d_output, const Tensor& output,
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
          dot += static_cast<double>(d_rows.data<float>()[c]) * static_cast<double>(rows.data<float>()[c]);
        }
        const double log_weight = options.sinks.at({h}) - static_cast<double>(lse.data<float>()[row]);
        if (dot != 0) sum -= std::exp(log_weight) * dot;
      }
    }
    grad.set({h}, sum);
  }
  return grad;
}

}  // namespace

AttentionResult fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                const AttentionOptions& options) {
  const Call call(q, k, v, p, options);
  AttentionResult result{empty_like(q, p.output_shape()), Tensor::empty({p.batch, p.hq, p.tq}), {}};
  run_forward(call, {rows(result.output), result.lse.data<float>()});
  const auto composed = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    return composed_row(q, k, v, p, options, call.at_keys, b, h, i);
  };
  mend_overflow(p, options.mask, call.at_keys, result, composed);
  if (options.return_weights) result.weights = weights_of_rows(p, options, composed);
  return result;
}

bool can_decode(const Tensor& q, const Problem& p, const AttentionOptions& options) {
  return can_fuse(q, options) && kernels::plan(Call(q, p, options).problem, kernels::active()).decodes();
}

AttentionResult fused_decode(const Tensor& q, const kernels::Pages& pages, const Problem& p,
                             const AttentionOptions& options,
                             const std::function<std::pair<Tensor, Tensor>()>& gather) {
  Call call(q, p, options);
  call.problem.pages = &pages;
  AttentionResult result{Tensor::empty(p.output_shape(), q.dtype()), Tensor::empty({p.batch, p.hq, p.tq}), {}};
  run_forward(call, {rows(result.output), result.lse.data<float>()});
  Tensor k, v;
  const auto composed = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    if (!k.defined()) std::tie(k, v) = gather();
    return composed_row(q, k, v, p, options, call.at_keys, b, h, i);
  };
  mend_overflow(p, options.mask, call.at_keys, result, composed);
  if (options.return_weights) result.weights = weights_of_rows(p, options, composed);
  return result;
}

AttentionGradient fused_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Problem& p, const AttentionOptions& options,
                                           const AttentionResult& forward) {
  const Call call(q, k, v, p, options);
  const Tensor d_out = readable(d_output.to(q.dtype())), out = readable(forward.output), lse = forward.lse.contiguous();
  AttentionGradient grad{empty_like(q, q.shape()), empty_like(k, k.shape()), empty_like(v, v.shape()), {}, {}};
  const kernels::BackwardInput input{rows(out), rows(d_out), lse.data<float>()};
  kernels::BackwardResult result{rows(grad.q), rows(grad.k), rows(grad.v)};
  bool finite = true;
  result.finite = &finite;
  if (call.bias.defined()) {
    grad.bias = Tensor::zeros(call.bias.shape());
    const Tensor all = grad.bias.expand(p.scores_shape());
    result.bias = all.data<float>();
    result.bias_batch = all.stride(0), result.bias_head = all.stride(1);
    result.bias_query = all.stride(2), result.bias_key = all.stride(3);
  }
  const kernels::BackwardPlan plan = kernels::plan(call.problem, result, kernels::active());
  const CallMemory shared(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    parallel_for(plan.tasks[phase], plan.scratch, 2.5 * call.operations, [&](std::int64_t task, void* scratch) {
      plan.kernel->run(call.problem, plan, input, result, phase, task, shared.get(), scratch);
    });
  }
  if (!finite || (grad.bias.defined() && !all_finite(grad.bias))) {
    return composed_attention_backward(d_output, q, k, v, p, options);
  }
  if (grad.bias.defined()) grad.bias = grad.bias.to(options.mask.bias.dtype());
  if (options.sinks.defined()) grad.sinks = sinks_gradient(p, options, d_out, out, lse);
  return grad;
}

}  // namespace attn
