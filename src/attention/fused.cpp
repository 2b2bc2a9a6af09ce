#include "attention/fused.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "attention/row.hpp"
#include "attention/runs.hpp"
#include "core/subnormals.hpp"
#include "kernels/explain.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

// Of options.weight_rows.
template <class Row>
Tensor weights_of_rows(const Sizes& p, const AttentionOptions& options, std::span<const Piece> all, Row&& composed) {
  const std::int64_t n = options.weight_rows.numel();
  Tensor weights = Tensor::empty({p.batch, p.hq, n, p.tk});
  for (std::int64_t at = 0; p.tk != 0 && at < p.batch * p.hq * n; ++at) {
    const std::int64_t b = at / n / p.hq, h = at / n % p.hq;
    const auto i = static_cast<std::int64_t>(options.weight_rows.at({at % n}));
    const auto holds = [b, i](const Piece& piece) {
      return b < piece.batch + piece.batches && i < piece.query + piece.tq;  // the first that ends behind it
    };
    const Piece& piece = *std::find_if(all.begin(), all.end(), holds);
    weights.select(0, b).select(0, h).select(0, at % n).copy_from(composed(piece, b, h, i).weights.view({p.tk}));
  }
  return weights;
}

}  // namespace

bool run_forward(const Call& call, AttentionResult& result, const Tensor& lse_rest) {
  bool finite = true;
  Arena arena;
  Vector<kernels::ForwardPlan> plans(&arena);
  Vector<kernels::ForwardResult> results(&arena);
  plans.reserve(call.parts.size()), results.reserve(call.parts.size());
  const std::int64_t tq = result.lse.size(2);
  for (const Part& part : call.parts) {
    const Piece& piece = part.piece;
    const std::int64_t row = piece.batch * part.problem.hq * tq + piece.query;
    plans.push_back(kernels::plan_to_run(part.problem));
    results.push_back({rows_from(result.output, piece.batch, piece.query), result.lse.data<float>() + row, tq,
                       element(result.output.dtype()), &finite,
                       lse_rest.defined() ? lse_rest.data<float>() + row : nullptr});
  }
  run_plans(plans, call.operations, [&](std::size_t i, int phase, std::int64_t task, void* shared, void* scratch) {
    const ZeroSubnormals zero(may_zero_subnormals(call.parts[i].problem));
    plans[i].kernel->run(call.parts[i].problem, plans[i], results[i], phase, task, shared, scratch);
  });
  return finite;
}

namespace {

// again() computes what the kernels could not; composed(piece, b, h, i) computes a row by the reference, with its
// weights.
template <class Again, class Row>
AttentionResult forward(const Call& call, const Sizes& p, const AttentionOptions& options, Tensor output, Again&& again,
                        Row&& composed, const Tensor& lse_rest = {}) {
  AttentionResult result{std::move(output), Tensor::empty({p.batch, p.hq, p.tq}), {}};
  if (!run_forward(call, result, lse_rest)) {
    again(result);
    if (lse_rest.defined()) lse_rest.fill(0);  // of rows that are others now
  }
  if (options.return_weights) result.weights = weights_of_rows(p, options, call.pieces, composed);
  return result;
}

}  // namespace

bool can_fuse(const Tensor& q, const AttentionOptions& options) {
  const bool all_weights = options.return_weights && !options.weight_rows.defined();
  return q.dtype() != DType::f64 && !all_weights && options.dropout < 1;
}

AttentionResult fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Sizes& p,
                                const AttentionOptions& options, const Tensor& lse_rest) {
  const Call call(q, k, v, p, options);
  const auto composed = [&](const Piece& piece, std::int64_t b, std::int64_t h, std::int64_t i) {
    return composed_row(q, k, v, p, options, piece, b, h, i);
  };
  const auto again = [&](AttentionResult& result) {
    compute_exactly(call, p, options, heads_not_finite(p, result), result);
  };
  return forward(call, p, options, empty_like(q, p.output_shape(), output_dtype(q, options)), again, composed,
                 lse_rest);
}

bool can_decode(const Tensor& q, const Sizes& p, const AttentionOptions& options) {
  if (!can_fuse(q, options)) return false;
  const Call call(q, p, options);
  return std::all_of(call.parts.begin(), call.parts.end(), [](const Part& part) {
    return kernels::plan(part.problem, kernels::active(), planned_threads()).decodes();
  });
}

AttentionResult fused_attention(const Tensor& q, const kernels::Pages& pages, const Sizes& p,
                                const AttentionOptions& options,
                                const std::function<std::pair<Tensor, Tensor>(const Heads&)>& gather,
                                const Tensor& lse_rest) {
  const Call call(q, pages, p, options);
  Tensor k, v;
  const auto composed = [&](const Piece& piece, std::int64_t b, std::int64_t h, std::int64_t i) {
    if (!k.defined()) std::tie(k, v) = gather({});
    return composed_row(q, k, v, p, options, piece, b, h, i);
  };
  const auto again = [&](AttentionResult& result) {
    const Heads heads = heads_not_finite(p, result);
    const auto [keys, values] = gather(heads);
    compute_exactly(Call(q, keys, values, p, options), p, options, heads, result);
  };
  return forward(call, p, options, empty_like(q, p.output_shape(), output_dtype(q, options)), again, composed,
                 lse_rest);
}

}  // namespace attn
