#include "attention/fused.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "attention/composed.hpp"
#include "attention/positions.hpp"
#include "core/parallel.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

kernels::Element element(DType dtype) {
  if (dtype == DType::bf16) return kernels::Element::bf16;
  return dtype == DType::f16 ? kernels::Element::f16 : kernels::Element::f32;
}

kernels::Rows rows(const Tensor& t) { return {t.raw(), t.stride(0), t.stride(1), t.stride(2)}; }

// Unit stride in the last dimension, as the kernels read; one element long has any.
Tensor readable(const Tensor& t) { return t.size(-1) == 1 || t.stride(-1) == 1 ? t : t.contiguous(); }

template <class T>
kernels::Grid<T> grid(const Tensor& t, const Problem& p) {
  if (!t.defined()) return {};
  const Tensor all = t.expand(p.scores_shape());
  return {all.data<T>(), all.stride(0), all.stride(1), all.stride(2), all.stride(3)};
}

// Rows whose scores or sums left float32's range have no finite log-sum-exp or -inf: the reference, which sums
// in double, computes those again. A few rows at a time, so that memory stays linear in tk.
void mend_overflow(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p, const AttentionOptions& options,
                   const Positions& at_keys, AttentionResult& result) {
  const auto* lse = result.lse.data<float>();
  const auto good = [](float x) { return x < std::numeric_limits<float>::infinity(); };  // false for NaN
  const Shape scores = p.scores_shape();
  for (std::int64_t at = 0; at < result.lse.numel(); ++at) {
    if (good(lse[at])) continue;
    const std::int64_t b = at / (p.hq * p.tq), h = at / p.tq % p.hq, i = at % p.tq;
    const auto cell = [&](const Tensor& t) { return t.slice(0, b, b + 1).slice(1, h, h + 1).slice(2, i, i + 1); };
    const auto source = [&](const Tensor& t) {
      const std::int64_t head = h / (p.hq / p.hkv);
      return t.slice(0, b, b + 1).slice(1, head, head + 1);
    };
    AttentionOptions row = options;
    row.scale = p.scale;
    row.mask = {};
    row.mask.keep = Tensor::zeros({1, 1, 1, p.tk}, DType::boolean);
    const std::int64_t first = at_keys.first[at_keys.index(p, b, i)], last = at_keys.last[at_keys.index(p, b, i)];
    if (first < last) row.mask.keep.slice(3, first, last).fill(1);
    if (options.mask.keep.defined()) {
      const Tensor both = cell(options.mask.keep.expand(scores)).clone();
      for (std::int64_t j = 0; j < p.tk; ++j) {
        row.mask.keep.data<bool>()[j] = row.mask.keep.data<bool>()[j] && both.data<bool>()[j];
      }
    }
    if (options.mask.bias.defined()) row.mask.bias = cell(options.mask.bias.expand(scores));
    if (options.dropout > 0) row.dropout_keep = cell(options.dropout_keep.expand(scores));
    const Tensor query = cell(q), keys = source(k), values = source(v);
    const AttentionResult exact =
        composed_attention(query, keys, values, validate(query, keys, values, row), row, nullptr);
    cell(result.output).copy_from(exact.output);
    result.lse.data<float>()[at] = exact.lse.data<float>()[0];
  }
}

}  // namespace

bool can_fuse(const Tensor& q, const AttentionOptions& options) {
  const bool plain = !options.return_weights && !options.alibi_slopes.defined() && !options.sinks.defined();
  return q.dtype() != DType::f64 && plain;
}

AttentionResult fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                const AttentionOptions& options) {
  const Tensor queries = readable(q), keys = readable(k), values = readable(v);
  const Tensor bias = options.mask.bias.defined() ? options.mask.bias.to(DType::f32) : Tensor{};
  const Positions seen = positions(p, options.mask);
  AttentionResult result{Tensor::empty(p.output_shape(), q.dtype()), Tensor::empty({p.batch, p.hq, p.tq}), {}};

  kernels::Problem problem{};
  problem.batch = p.batch, problem.hq = p.hq, problem.hkv = p.hkv;
  problem.tq = p.tq, problem.tk = p.tk, problem.d = p.d, problem.dv = p.dv;
  problem.element = element(q.dtype());
  problem.q = rows(queries), problem.k = rows(keys), problem.v = rows(values);
  problem.scale = static_cast<float>(p.scale);
  problem.softcap = static_cast<float>(options.softcap);
  problem.first = seen.first.data(), problem.last = seen.last.data();
  problem.interval_batch = seen.per_batch ? p.tq : 0;
  problem.keep = grid<bool>(options.mask.keep, p);
  problem.bias = grid<float>(bias, p);
  problem.dropout_keep = options.dropout > 0 ? grid<bool>(options.dropout_keep, p) : kernels::Grid<bool>{};
  problem.dropout_factor = options.dropout < 1 ? static_cast<float>(1 / (1 - options.dropout)) : 1;

  const kernels::Kernels& kernel = kernels::active();
  const kernels::ForwardResult out{rows(result.output), result.lse.data<float>()};
  const double operations =
      2.0 * static_cast<double>(p.batch * p.hq * p.tq) * static_cast<double>(p.tk) * static_cast<double>(p.d + p.dv);
  parallel_for(kernel.forward_tasks(problem), kernel.forward_scratch(problem), operations,
               [&](std::int64_t task, void* scratch) { kernel.forward(problem, out, task, scratch); });
  mend_overflow(q, k, v, p, options, seen, result);
  return result;
}

}  // namespace attn
