#include "modules/dense.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "attention/element.hpp"
#include "core/parallel.hpp"
#include "core/visit.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

// A matrix with a unit stride, as the kernels read.
Tensor readable(const Tensor& t) { return t.stride(0) == 1 || t.stride(1) == 1 ? t : t.contiguous(); }

// One element long has any.
std::int64_t step(const Tensor& t, std::int64_t dim) { return t.size(dim) == 1 ? 1 : t.stride(dim); }

// a (m, k) · b (k, n) + bias (n), any strides → (m, n); undefined when a result left its dtype's range.
Tensor product(const Tensor& left, const Tensor& right, const Tensor& bias, Precision named) {
  const Tensor a = readable(left), b = readable(right);
  const std::int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  Tensor c = Tensor::empty({m, n}, a.dtype());
  const kernels::Product p{m,
                           n,
                           k,
                           a.raw(),
                           step(a, 0),
                           step(a, 1),
                           b.raw(),
                           step(b, 0),
                           step(b, 1),
                           bias.defined() ? bias.raw() : nullptr,
                           c.raw(),
                           n,
                           element(a.dtype()),
                           precision(named)};
  const kernels::Kernels& kernel = kernels::active();
  const Tensor packed = Tensor::empty({static_cast<std::int64_t>(kernel.packed_bytes(p))}, DType::u8);
  std::atomic<bool> fits{true};
  const auto size = static_cast<double>(n) * static_cast<double>(k);
  parallel_for(kernel.panels(p), 0, size, [&](std::int64_t i, void*) { kernel.pack_panel(p, packed.raw(), i); });
  parallel_for(kernel.product_tasks(p), kernel.product_scratch(p), 2 * size * static_cast<double>(m),
               [&](std::int64_t task, void* scratch) {
                 if (!kernel.product(p, packed.raw(), task, scratch)) fits.store(false, std::memory_order_relaxed);
               });
  return fits ? c : Tensor{};
}

// Σ over the rows of (m, n) → (n), in float32: by runs of rows, then over the runs, in order; undefined when a sum left
// its dtype's range.
Tensor sum_rows(const Tensor& rows) {
  constexpr std::int64_t kRun = 256;
  const std::int64_t m = rows.size(0), n = rows.size(1), runs = (m + kRun - 1) / kRun;
  Tensor sums = Tensor::zeros({runs, n});
  parallel_for(runs, 0, static_cast<double>(m) * static_cast<double>(n), [&](std::int64_t run, void*) {
    float* out = sums.data<float>() + run * n;
    visit(rows.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t i = run * kRun; i < std::min(m, (run + 1) * kRun); ++i) {
        const T* in = rows.data<T>() + i * n;
        for (std::int64_t j = 0; j < n; ++j) out[j] += static_cast<float>(in[j]);
      }
    });
  });
  float* out = sums.data<float>();
  for (std::int64_t run = 1; run < runs; ++run) {
    for (std::int64_t j = 0; j < n; ++j) out[j] += out[run * n + j];
  }
  const Tensor narrowed = sums.select(0, 0).to(rows.dtype());
  for (std::int64_t j = 0; j < n; ++j) {
    if (!std::isfinite(narrowed.at({j}))) return {};
  }
  return narrowed;
}

Tensor as_rows(const Tensor& x) { return x.contiguous().view({x.numel() / x.size(-1), x.size(-1)}); }

bool has_kernel(const Tensor& a, const Tensor& b) {
  return is_floating(a.dtype()) && a.dtype() != DType::f64 && a.dtype() == b.dtype() && a.numel() > 0 && b.numel() > 0;
}

}  // namespace

Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias, Precision precision) {
  const bool fits = x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1);
  const bool few = fits && precision == Precision::highest && has_few_rows(x, weight);
  if (fits && !few && weight.dtype() == DType::bf16 && x.dtype() == DType::f32) {
    return project(x, weight.to(DType::f32), bias, precision);
  }
  const bool biased = bias.defined() && bias.dtype() == x.dtype() && bias.shape() == Shape{weight.size(0)};
  const bool known = fits && (biased || !bias.defined()) && (few || has_kernel(x, weight));
  if (!known) return reference::project(x, weight, bias);
  const Tensor line = biased ? bias.contiguous() : bias;
  const Tensor y = few ? project_few_rows(as_rows(x), weight, line)
                       : product(as_rows(x), weight.transpose(0, 1), line, precision);
  if (!y.defined()) return reference::project(x, weight.to(x.dtype()), bias);
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  return y.view(shape);
}

reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias,
                                            Precision precision) {
  if (!has_kernel(x, weight) || !has_kernel(dy, weight)) {
    return reference::project_backward(dy, x, weight, has_bias);
  }
  const Tensor dy_rows = as_rows(dy), x_rows = as_rows(x);
  const Tensor dx = product(dy_rows, weight, {}, precision);                        // y = x · weightᵀ
  const Tensor d_weight = product(dy_rows.transpose(0, 1), x_rows, {}, precision);  // y = x · weightᵀ
  const Tensor d_bias = has_bias ? sum_rows(dy_rows) : Tensor{};                    // y = … + bias, on every row
  if (!dx.defined() || !d_weight.defined() || (has_bias && !d_bias.defined())) {
    return reference::project_backward(dy, x, weight, has_bias);
  }
  return {dx.view(x.shape()), d_weight, d_bias};
}

}  // namespace attn
