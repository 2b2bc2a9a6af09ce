#include "attention/fused.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "attention/runs.hpp"
#include "core/subnormals.hpp"
#include "kernels/explain.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

// The weights of the rows that options.weight_rows names.
Tensor weights_of_rows(const Call& call, const Sizes& p, const AttentionOptions& options) {
  const std::int64_t n = options.weight_rows.numel();
  const Tensor weights = Tensor::zeros({p.batch, p.hq, n, p.tk});
  for (std::int64_t at = 0; p.tk != 0 && at < p.batch * p.hq * n; ++at) {
    const std::int64_t b = at / n / p.hq, h = at / n % p.hq;
    const auto i = static_cast<std::int64_t>(options.weight_rows.at({at % n}));
    const Part& part = *std::find_if(call.parts.begin(), call.parts.end(), [b, i](const Part& one) {
      return b < one.piece.batch + one.piece.batches &&
             i < one.piece.query + one.piece.tq;  // the first that ends later
    });
    const ExactRow row(call, p, options, {part, b - part.piece.batch, h, i - part.piece.query});
    for (std::int64_t j = 0; j < part.piece.tk; ++j)
      weights.data<float>()[at * p.tk + part.piece.key + j] = static_cast<float>(row.weight(j));
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

// with_keys() is the call with its keys and values as tensors.
template <class WithKeys>
AttentionResult forward(const Call& call, const Sizes& p, const AttentionOptions& options, const WithKeys& with_keys,
                        const Tensor& lse_rest) {
  AttentionResult result{empty_like(call.q, p.output_shape(), output_dtype(call.q, options)),
                         Tensor::empty({p.batch, p.hq, p.tq})};
  if (!run_forward(call, result, lse_rest)) {
    compute_again(with_keys(), p, options, result);
    if (lse_rest.defined()) lse_rest.fill(0);  // of rows that are others now
  }
  if (options.return_weights) result.weights = weights_of_rows(with_keys(), p, options);
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
  return forward(
      call, p, options, [&]() -> const Call& { return call; }, lse_rest);
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
                                const std::function<std::pair<Tensor, Tensor>()>& gather, const Tensor& lse_rest) {
  const Call call(q, pages, p, options);
  std::optional<Call> gathered;
  const auto with_keys = [&]() -> const Call& {
    if (!gathered) {
      const auto [k, v] = gather();
      gathered.emplace(q, k, v, p, options);
    }
    return *gathered;
  };
  return forward(call, p, options, with_keys, lse_rest);
}

}  // namespace attn
