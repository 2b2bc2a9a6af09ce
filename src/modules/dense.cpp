#include "modules/dense.hpp"

#include <atomic>

#include "core/parallel.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

// a (m, k) · b (k, n) + bias (n), any strides → (m, n); undefined when a result left float32's range.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const std::int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  Tensor c = Tensor::empty({m, n});
  const kernels::Product p{m,
                           n,
                           k,
                           a.data<float>(),
                           a.stride(0),
                           a.stride(1),
                           b.data<float>(),
                           b.stride(0),
                           b.stride(1),
                           bias.defined() ? bias.data<float>() : nullptr,
                           c.data<float>(),
                           n};
  const kernels::Kernels& kernel = kernels::active();
  const Tensor packed = Tensor::empty({kernel.packed_floats(p)});
  auto* panels = packed.data<float>();
  std::atomic<bool> finite{true};
  const auto size = static_cast<double>(n) * static_cast<double>(k);
  parallel_for(kernel.panels(p), 0, size, [&](std::int64_t i, void*) { kernel.pack_panel(p, panels, i); });
  parallel_for(kernel.product_tasks(p), kernel.product_scratch(p), 2 * size * static_cast<double>(m),
               [&](std::int64_t task, void* scratch) {
                 if (!kernel.product(p, panels, task, scratch)) finite.store(false, std::memory_order_relaxed);
               });
  return finite ? c : Tensor{};
}

Tensor as_rows(const Tensor& x) { return x.contiguous().view({x.numel() / x.size(-1), x.size(-1)}); }

bool all_float32(const Tensor& a, const Tensor& b) {
  return a.dtype() == DType::f32 && b.dtype() == DType::f32 && a.numel() > 0 && b.numel() > 0;
}

}  // namespace

Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const bool fits = x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1);
  const bool few = fits && has_few_rows(x, weight);
  if (!few && weight.dtype() == DType::bf16 && x.dtype() == DType::f32) return project(x, weight.to(DType::f32), bias);
  if (!fits || (!few && !all_float32(x, weight))) return reference::project(x, weight, bias);
  const Tensor line = bias.defined() ? bias.contiguous() : bias;
  const Tensor y = few ? project_few_rows(as_rows(x), weight, line) : product(as_rows(x), weight.transpose(0, 1), line);
  if (!y.defined()) return reference::project(x, weight.to(DType::f32), bias);
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  return y.view(shape);
}

reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias) {
  if (!all_float32(x, weight) || !all_float32(dy, weight)) return reference::project_backward(dy, x, weight, has_bias);
  const Tensor dy_rows = as_rows(dy);
  const Tensor x_rows = as_rows(x);
  const Tensor dx = product(dy_rows, weight, {});                        // y = x · weightᵀ
  const Tensor d_weight = product(dy_rows.transpose(0, 1), x_rows, {});  // y = x · weightᵀ
  // y = … + bias, on every row
  const Tensor d_bias = has_bias ? product(Tensor::ones({1, dy_rows.size(0)}), dy_rows, {}) : dx;
  if (!dx.defined() || !d_weight.defined() || !d_bias.defined()) {
    return reference::project_backward(dy, x, weight, has_bias);
  }
  return {dx.view(x.shape()), d_weight, has_bias ? d_bias.view({dy.size(-1)}) : Tensor{}};
}

}  // namespace attn
