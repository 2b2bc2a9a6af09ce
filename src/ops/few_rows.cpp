// The products of a decoder: a row or a few against a whole weight, which is read once.
#include <atomic>

#include "attention/element.hpp"
#include "core/parallel.hpp"
#include "core/subnormals.hpp"
#include "kernels/explain.hpp"
#include "ops/dense.hpp"

namespace attn {
namespace {

// More are faster as a product of many. Pairs of bfloat16 take less time to multiply, beside their packing, and bytes
// more to pack.
std::int64_t most_rows(const Tensor& x, const Tensor& weight, Precision precision) {
  const bool rounded = x.dtype() == DType::bf16 && weight.dtype() != DType::f32;
  const bool pairs = kernels::active().bf16_product && (rounded || precision == Precision::medium);
  return pairs || weight.dtype() == DType::i8 ? 24 : 8;
}

}  // namespace

bool has_few_rows(const Tensor& x, const Tensor& weight, Precision precision) {
  const bool stored = weight.dtype() == DType::f32 || weight.dtype() == DType::bf16 || weight.dtype() == DType::i8;
  const bool rows = x.dtype() == DType::f32 || x.dtype() == DType::bf16;
  return stored && rows && x.numel() > 0 && x.numel() <= most_rows(x, weight, precision) * x.size(-1) &&
         weight.numel() > 0 && weight.stride(1) == 1;
}

Tensor project_few_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, Precision precision, bool& fits) {
  const Tensor rows = x.to(DType::f32);
  const std::int64_t m = rows.size(0), n = weight.size(0), k = weight.size(1);
  const Tensor y = Tensor::empty({m, n});
  const kernels::FewRows p{m,
                           n,
                           k,
                           rows.data<float>(),
                           rows.stride(0),
                           element(weight.dtype()),
                           weight.raw(),
                           weight.stride(0),
                           bias.defined() ? bias.data<float>() : nullptr,
                           y.data<float>(),
                           n,
                           element(x.dtype()),
                           precision};
  const kernels::FewRowsPlan plan = kernels::plan_to_run(p);
  std::atomic<bool> finite{true};
  const double operations = 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  parallel_for(plan.tasks[0], plan.scratch, operations, [&](std::int64_t task, void* scratch) {
    const ZeroSubnormals zero(true);
    if (!plan.kernel->run(p, plan, task, scratch)) finite.store(false, std::memory_order_relaxed);
  });
  fits = finite;
  return y;
}

}  // namespace attn
