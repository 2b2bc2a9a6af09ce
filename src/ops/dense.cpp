#include "ops/dense.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "attention/element.hpp"
#include "attention/special.hpp"
#include "core/parallel.hpp"
#include "core/rows.hpp"
#include "core/subnormals.hpp"
#include "core/visit.hpp"
#include "kernels/explain.hpp"
#include "reference/elementwise.hpp"

namespace attn {
namespace {

// A matrix with a unit stride, as the kernels read.
Tensor readable(const Tensor& t) { return t.stride(0) == 1 || t.stride(1) == 1 ? t : t.contiguous(); }

// One element long has any.
std::int64_t step(const Tensor& t, std::int64_t dim) { return t.size(dim) == 1 ? 1 : t.stride(dim); }

struct Finished {
  Tensor c;
  bool fits = true;       // all of it is finite
  bool in_parts = false;  // float32 was multiplied as sums of bf16
};

// a (m, k) · b (k, n) + bias (n, float32) + residual (m, n, float32), a and b of any strides → (m, n).
Finished product(const Tensor& left, const Tensor& right, const Tensor& bias, const Tensor& residual,
                 Precision precision, DType dtype) {
  const Tensor a = readable(left), b = readable(right);
  const std::int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  Tensor c = Tensor::empty({m, n}, dtype);
  kernels::Product p{};
  p.m = m, p.n = n, p.k = k;
  p.a = a.raw(), p.a_row = step(a, 0), p.a_depth = step(a, 1);
  p.b = b.raw(), p.b_depth = step(b, 0), p.b_column = step(b, 1);
  p.c = c.raw(), p.c_row = n;
  p.a_element = element(a.dtype()), p.b_element = element(b.dtype()), p.c_element = element(dtype);
  if (bias.defined()) p.bias = bias.data<float>();
  if (residual.defined()) p.residual = residual.data<float>();
  p.precision = precision;
  const kernels::ProductPlan plan = kernels::plan_to_run(p);
  const kernels::ProductFunctions& kernel = *plan.kernel;
  const Tensor packed = Tensor::empty({static_cast<std::int64_t>(plan.packed)}, DType::u8);
  std::atomic<bool> fits{true};
  const auto size = static_cast<double>(n) * static_cast<double>(k);
  parallel_for(plan.pack_tasks, 0, size, [&](std::int64_t i, void*) { kernel.pack(p, plan, packed.raw(), i); });
  parallel_shares(plan.tasks[0], plan.scratch, 2 * size * static_cast<double>(m), [&](TaskQueue& tasks, void* scratch) {
    const ZeroSubnormals zero(p.a_element != kernels::Element::f16 && p.b_element != kernels::Element::f16);
    const auto take = [](void* queue, bool early) { return static_cast<TaskQueue*>(queue)->take(early); };
    const bool fit = kernel.run(p, plan, packed.raw(), {take, &tasks}, scratch);
    if (!fit) fits.store(false, std::memory_order_relaxed);
  });
  const bool wide = a.dtype() == DType::f32 || b.dtype() == DType::f32;
  return {c, fits, wide && plan.parts > 0};
}

// Σ over the rows of (m, n) → (n), summed in float32: by runs of rows, then over the runs, in order.
Tensor sum_rows(const Tensor& rows, DType dtype) {
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
  return sums.select(0, 0).to(dtype);
}

Tensor as_rows(const Tensor& x) { return x.contiguous().view({x.numel() / x.size(-1), x.size(-1)}); }

bool is_plain(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

// One dtype that the kernels take, or float32 and bfloat16.
bool multiply(DType a, DType b) { return (is_plain(a) && is_plain(b)) || (a == b && is_floating(a) && has_element(a)); }

bool has_kernel(const Tensor& a, const Tensor& b) {
  return multiply(a.dtype(), b.dtype()) && a.numel() > 0 && b.numel() > 0;
}

// The reference takes one dtype: float32 in place of float32 and bfloat16 side by side.
template <class... T>
bool mixed(const Tensor& first, const T&... others) {
  return (multiply(first.dtype(), others.dtype()) && ...) && ((first.dtype() != others.dtype()) || ...);
}

Tensor widened(const Tensor& x, bool mixed) { return mixed && x.defined() ? x.to(DType::f32) : x; }

// + residual, in `dtype`; a finite number past its range becomes its largest.
Tensor finished(Tensor y, const Tensor& residual, DType dtype) {
  if (residual.defined()) add_in_place(y = y.to(DType::f32), residual);
  if (dtype == DType::bf16 && y.dtype() == DType::f32) {
    const Tensor narrow = rounded(y);
    if (is_finite(narrow.raw(), dtype, narrow.numel())) return narrow;
  }
  return reference::saturate_to(y, dtype);
}

// The rows of a float64 matrix whose products are NaN or infinite as they are, one byte each: infinities that are split
// in parts give NaN where they should not.
std::vector<char> explained(const Tensor& rows, bool in_parts) {
  std::vector<char> found(static_cast<std::size_t>(rows.size(0)));
  const double* row = rows.data<double>();
  for (char& one : found) {
    one = std::any_of(row, row + rows.size(1), [&](double x) { return std::isnan(x) || (std::isinf(x) && !in_parts); });
    row += rows.size(1);
  }
  return found;
}

// The elements of y = x · weightᵀ + bias + residual that are not finite, once more in double, one after the other: of
// finite numbers whose sums left float32's range, or of infinities that were split in parts. A finite number past y's
// range becomes its largest.
void compute_exactly(const Tensor& x, const Tensor& weight, const Tensor& bias, const ProductOptions& options,
                     const Finished& found) {
  const Tensor& y = found.c;
  const std::int64_t n = y.size(1), depth = x.size(1);
  const Tensor rows = x.to(DType::f64).contiguous(), columns = weight.to(DType::f64).contiguous();
  const std::vector<char> right_rows = explained(rows, found.in_parts),
                          right_columns = explained(columns, found.in_parts);
  for_runs(
      y.size(0), static_cast<double>(8 * n),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) {
          if (right_rows[static_cast<std::size_t>(i)] || is_finite(address(y, i * n), y.dtype(), n)) continue;
          const Tensor line = y.slice(0, i, i + 1).to(DType::f32).clone();
          float* out = line.data<float>();
          const double* left = rows.data<double>() + i * depth;
          for (std::int64_t j = 0; j < n; ++j) {
            if (right_columns[static_cast<std::size_t>(j)] || std::isfinite(out[j])) continue;
            double sum = std::inner_product(left, left + depth, columns.data<double>() + j * depth, 0.0);
            if (bias.defined()) sum += static_cast<double>(bias.data<float>()[j]);
            if (options.residual.defined()) sum += static_cast<double>(options.residual.data<float>()[i * n + j]);
            out[j] = reference::narrow<float>(sum);
          }
          store_saturated({out, static_cast<std::size_t>(n)}, address(y, i * n), y.dtype());
        }
      },
      16);
}

// sums (m, n) become sums · scales + bias; returns whether all are finite.
bool scale_columns(const Tensor& sums, const Tensor& scales, const Tensor& bias) {
  const std::int64_t n = sums.size(1);
  const float *scale = scales.data<float>(), *add = bias.defined() ? bias.data<float>() : nullptr;
  std::atomic<bool> finite{true};
  for_runs(
      sums.size(0), static_cast<double>(2 * n),
      [&](std::int64_t first, std::int64_t count) {
        float rest = 0;
        for (std::int64_t i = first; i < first + count; ++i) {
          float* y = sums.data<float>() + i * n;
          for (std::int64_t j = 0; j < n; ++j) {
            y[j] = y[j] * scale[j] + (add ? add[j] : 0);
            rest += y[j] - y[j];  // NaN, of infinities and NaN
          }
        }
        if (rest != 0) finite.store(false, std::memory_order_relaxed);
      },
      64);
  return finite;
}

// bytes · scales, in float32.
Tensor widened_rows(const Tensor& bytes, const Tensor& scales) {
  const Tensor whole = Tensor::empty(bytes.shape());
  for (std::int64_t i = 0; i < bytes.size(0); ++i) {
    const Tensor row = bytes.select(0, i).to(DType::f32);
    scale_in_place(row, scales.at({i}));
    whole.select(0, i).copy_from(row);
  }
  return whole;
}

// The rows of y that are not finite, of float32 weights: others keep their bits.
void compute_rows_again(const Tensor& x, const Tensor& weight, const Tensor& bias, Precision precision,
                        const Tensor& y) {
  for (std::int64_t i = 0; i < y.size(0); ++i) {
    const Tensor row = y.slice(0, i, i + 1);
    if (is_finite(row.raw(), DType::f32, row.numel())) continue;
    row.copy_from(project(x.slice(0, i, i + 1), weight, bias, {precision, DType::f32}));
  }
}

// y = scales · (x · bytesᵀ) + bias + residual: sums of whole numbers are scaled once, in few rows and in many. What
// the kernels do not take, or what leaves float32's range before it is scaled, is computed of float32 weights.
Tensor project_bytes(const Tensor& x, const Tensor& bytes, const Tensor& bias, const ProductOptions& options) {
  const Tensor& scales = options.scales;
  if (!scales.defined() || scales.dtype() != DType::f32 || !(scales.shape() == Shape{bytes.size(0)})) {
    throw Error(Error::Kind::argument, "project", "a float32 scale for each row of an int8 weight",
                scales.defined() ? std::string(name(scales.dtype())) + scales.shape().str() : "none");
  }
  if (has_kernel(x, x) && is_plain(x.dtype()) && x.size(-1) == bytes.size(1) && bytes.numel() > 0) {
    const Tensor rows = as_rows(x), line = bias.defined() ? bias.to(DType::f32).contiguous() : bias;
    Finished y;
    if (has_few_rows(x, bytes, options.precision)) {
      y.c = project_few_rows(rows, bytes, {}, options.precision, y.fits);
    } else {
      y = product(rows, bytes.transpose(0, 1), {}, {}, options.precision, DType::f32);
    }
    Shape shape = x.shape();
    shape.back() = bytes.size(0);
    if (!scale_columns(y.c, scales, line)) {
      compute_rows_again(rows, widened_rows(bytes, scales).to(x.dtype()), line, options.precision, y.c);
    }
    return finished(y.c.view(shape), options.residual, *options.dtype);
  }
  const Tensor whole = widened_rows(bytes, scales).to(x.dtype());
  return project(x, whole, bias, {options.precision, options.dtype, options.residual});
}

// y = x · weightᵀ + bias + residual. What the kernels do not take, or what leaves float32's range, is computed of
// float32 weights.
Tensor project_blocks(const Tensor& x, const Tensor& bias, const ProductOptions& options) {
  const QuantizedMatrix& weight = *options.blocks;
  const bool added = !bias.defined() || bias.shape() == Shape{weight.rows()};
  if (!is_plain(x.dtype()) || x.rank() < 1 || x.numel() == 0 || x.size(-1) != weight.width() || !added) {
    const Tensor whole = weight.read(0, weight.rows()).to(x.dtype());
    return project(x, whole, bias, {options.precision, options.dtype, options.residual});
  }
  const Tensor rows = as_rows(x), line = bias.defined() ? bias.to(DType::f32).contiguous() : bias;
  bool fits = true;
  const Tensor y = project_quantized(rows, weight, line, options.precision, fits);
  if (!fits) {
    compute_rows_again(rows, weight.read(0, weight.rows()).to(x.dtype()), line, options.precision, y);
  }
  Shape shape = x.shape();
  shape.back() = weight.rows();
  return finished(y.view(shape), options.residual, *options.dtype);
}

}  // namespace

Tensor rounded(const Tensor& x) {
  const Tensor from = x.contiguous(), to = Tensor::empty(x.shape(), DType::bf16);
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(from.numel(), 1, [&](std::int64_t first, std::int64_t count) {
    kernel.narrow(element(to.dtype()), from.data<float>() + first, address(to, first), count);
  });
  return to;
}

DType stored(Precision precision) {
  return kernels::rounds_to_bf16(precision, kernels::active()) ? DType::bf16 : DType::f32;
}

DType stored(const Linear& layer) { return layer.weight.blocks ? DType::f32 : stored(layer.precision); }

Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias, const ProductOptions& options) {
  const DType dtype = options.dtype.value_or(x.dtype());
  const bool fits = x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1);
  if (options.blocks) {
    return project_blocks(x, bias, {options.precision, dtype, options.residual, {}, options.blocks});
  }
  if (weight.rank() == 2 && weight.dtype() == DType::i8) {
    return project_bytes(x, weight, bias, {options.precision, dtype, options.residual, options.scales});
  }
  const bool few = fits && has_few_rows(x, weight, options.precision);
  const DType added = bias.defined() ? bias.dtype() : DType::f32;
  const bool biased = bias.defined() && (added == DType::f32 || added == x.dtype() || added == weight.dtype()) &&
                      bias.shape() == Shape{weight.size(0)};
  const bool known = fits && (biased || !bias.defined()) && has_kernel(x, weight);
  const Tensor line = biased ? bias.to(DType::f32).contiguous() : bias;
  if (!known) {
    const bool wide = mixed(x, weight);
    const Tensor exact = reference::project(widened(x, wide), widened(weight, wide), widened(bias, wide));
    return finished(exact, options.residual, dtype);
  }
  const Tensor rows = as_rows(x);
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  if (few) {
    bool finite = true;
    const Tensor y = project_few_rows(rows, weight, line, options.precision, finite);
    if (finite) return finished(y.view(shape), options.residual, dtype);
  }
  const Finished y = product(rows, weight.transpose(0, 1), line, options.residual, options.precision, dtype);
  if (!y.fits) compute_exactly(rows, weight, line, options, y);
  return y.c.view(shape);
}

reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias,
                                            const ProductOptions& options) {
  const DType dtype = options.dtype.value_or(x.dtype());
  if (weight.dtype() == DType::i8) {
    throw Error(Error::Kind::dtype, "Linear", "weights in float32 or bfloat16, for a gradient", name(weight.dtype()));
  }
  const auto exact = [&] {
    const bool wide = mixed(dy, x, weight);
    auto grad = reference::project_backward(widened(dy, wide), widened(x, wide), widened(weight, wide), has_bias);
    grad.x = finished(grad.x, options.residual, dtype);
    return grad;
  };
  if (!has_kernel(x, weight) || !has_kernel(dy, weight)) return exact();
  const Tensor dy_rows = as_rows(dy), x_rows = as_rows(x);
  // y = x · weightᵀ + bias, the bias on every row
  const Tensor dx = product(dy_rows, weight, {}, options.residual, options.precision, dtype).c;
  if (!options.weight_gradient) return {dx.view(x.shape()), {}, {}};
  const Tensor d_weight = product(dy_rows.transpose(0, 1), x_rows, {}, {}, options.precision, weight.dtype()).c;
  return {dx.view(x.shape()), d_weight, has_bias ? sum_rows(dy_rows, weight.dtype()) : Tensor{}};
}

}  // namespace attn
