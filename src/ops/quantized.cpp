// Products with matrices that stay quantised.
#include <atomic>

#include "core/parallel.hpp"
#include "core/subnormals.hpp"
#include "kernels/product/quantized_problem.hpp"
#include "kernels/targets.hpp"
#include "ops/dense.hpp"

namespace attn {
namespace {

kernels::QuantizedProduct problem(const QuantizedMatrix& weight, const Tensor& bias, const Tensor& y) {
  const BlockForm& form = weight.form();
  kernels::QuantizedProduct p{};
  p.m = y.size(0), p.n = weight.rows(), p.k = weight.width();
  p.bits = form.bits, p.block = form.block, p.nested = form.nested, p.has_least = form.has_least, p.zero = form.zero;
  std::copy(form.levels.begin(), form.levels.end(), p.levels);
  p.codes = weight.codes().data<std::uint8_t>(), p.code_stride = weight.codes().size(1);
  p.scales = weight.scales().data<std::uint8_t>(), p.scale_stride = weight.scales().size(1);
  p.task_outputs = 64;
  if (bias.defined()) p.bias = bias.data<float>();
  p.c = y.data<float>(), p.c_row = p.n;
  return p;
}

}  // namespace

Tensor project_quantized(const Tensor& x, const QuantizedMatrix& weight, const Tensor& bias, bool& fits) {
  const Tensor rows = x.to(DType::f32).contiguous(), y = Tensor::empty({rows.size(0), weight.rows()});
  const kernels::QuantizedKernel& kernel = kernels::quantized(kernels::active());
  kernels::QuantizedProduct p = problem(weight, bias, y);
  p.a = rows.data<float>(), p.a_row = p.k;
  std::atomic<bool> finite{true};
  const double operations = 2 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  parallel_for(kernel.tasks(p), kernel.scratch, operations, [&](std::int64_t task, void* scratch) {
    const ZeroSubnormals zero(true);
    if (!kernel.run(p, task, scratch)) finite.store(false, std::memory_order_relaxed);
  });
  fits = finite;
  return y;
}

}  // namespace attn
