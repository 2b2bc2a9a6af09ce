// Products with matrices that stay quantised.
#include <atomic>
#include <optional>

#include "core/parallel.hpp"
#include "core/subnormals.hpp"
#include "kernels/quantized_targets.hpp"
#include "kernels/targets.hpp"
#include "ops/dense.hpp"

namespace attn {
namespace {

kernels::QuantizedProduct problem(const QuantizedMatrix& weight, const Tensor& bias, const Tensor& y) {
  const BlockForm& form = weight.form();
  kernels::QuantizedProduct p{};
  p.n = weight.rows(), p.k = weight.width();
  p.bits = form.bits, p.block = form.block, p.nested = form.nested, p.has_least = form.has_least, p.zero = form.zero;
  std::copy(form.levels.begin(), form.levels.end(), p.levels);
  p.codes = weight.codes().data<std::uint8_t>(), p.code_stride = weight.codes().size(1);
  p.scales = weight.scales().data<std::uint8_t>(), p.scale_stride = weight.scales().size(1);
  p.task_outputs = 64;
  if (bias.defined()) p.bias = bias.data<float>();
  p.c = y.data<float>(), p.c_row = p.n;
  return p;
}

// The rows of a problem, rounded to bytes, which take their place. With `parts` of two each row becomes two: its bytes,
// and those of what they leave of it.
class RowsInBytes {
 public:
  RowsInBytes(kernels::QuantizedProduct& p, const kernels::QuantizedKernel& kernel, std::int64_t parts)
      : bytes_(Tensor::empty({p.m * parts, p.k}, DType::i8)),
        scales_(Tensor::empty({p.m * parts, p.k / p.block})),
        starts_(Tensor::empty(scales_.shape(), DType::i32)),
        sums_(Tensor::empty(scales_.shape())) {
    p.x = {bytes_.data<std::int8_t>(), scales_.data<float>(), starts_.data<std::int32_t>(), sums_.data<float>()};
    const auto row_bytes = parts == 1 ? 0 : static_cast<std::size_t>(p.k) * sizeof(float);
    parallel_for(p.m, row_bytes, 8 * static_cast<double>(bytes_.numel()), [&](std::int64_t row, void* scratch) {
      const ZeroSubnormals zero(true);
      kernel.round_row(p, p.a + row * p.a_row, parts * row, p.x);
      if (parts == 1) return;
      left_of(p, row, static_cast<float*>(scratch));
      kernel.round_row(p, static_cast<const float*>(scratch), parts * row + 1, p.x);
    });
    p.a = nullptr, p.m *= parts;
  }

 private:
  static void left_of(const kernels::QuantizedProduct& p, std::int64_t row, float* left) {
    const float *x = p.a + row * p.a_row, *scales = p.x.scales + 2 * row * (p.k / p.block);
    const std::int8_t* bytes = p.x.bytes + 2 * row * p.k;
    for (std::int64_t i = 0; i < p.k; ++i) left[i] = x[i] - static_cast<float>(bytes[i]) * scales[i / p.block];
  }

  Tensor bytes_, scales_, starts_, sums_;
};

// (2 m, n) → (m, n): the sums of two rows and the bias
Tensor pairs_summed(const Tensor& y, const Tensor& bias) {
  const std::int64_t m = y.size(0) / 2, n = y.size(1);
  const Tensor sums = Tensor::empty({m, n});
  parallel_for(m, 0, 2 * static_cast<double>(sums.numel()), [&](std::int64_t row, void*) {
    const float* two = y.data<float>() + 2 * row * n;
    for (std::int64_t j = 0; j < n; ++j)
      sums.data<float>()[row * n + j] = two[j] + two[n + j] + (bias.defined() ? bias.data<float>()[j] : 0);
  });
  return sums;
}

}  // namespace

Tensor project_quantized(const Tensor& x, const QuantizedMatrix& weight, const Tensor& bias, Precision wanted,
                         bool& fits) {
  const Precision precision = kernels::kRowsInBytes ? wanted : Precision::highest;
  const Tensor rows = x.to(DType::f32).contiguous();
  const std::int64_t parts = precision == Precision::high ? 2 : 1;
  const Tensor y = Tensor::empty({parts * rows.size(0), weight.rows()});
  const kernels::QuantizedKernel& kernel = kernels::quantized(kernels::active());
  kernels::QuantizedProduct p = problem(weight, parts == 1 ? bias : Tensor{}, y);
  p.m = rows.size(0), p.a = rows.data<float>(), p.a_row = p.k;
  std::optional<RowsInBytes> bytes;
  if (precision != Precision::highest) bytes.emplace(p, kernel, parts);
  std::atomic<bool> finite{true};
  const double operations = 2 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  parallel_for(kernel.tasks(p), kernel.scratch, operations, [&](std::int64_t task, void* scratch) {
    const ZeroSubnormals zero(true);
    if (!kernel.run(p, task, scratch)) finite.store(false, std::memory_order_relaxed);
  });
  fits = finite;
  return parts == 1 ? y : pairs_summed(y, bias);
}

}  // namespace attn
