#include "distributed/partial.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/parallel.hpp"

namespace attn::distributed {

namespace {

// As merge() of the two has it: a part without a share gives nothing, not even NaN.
template <class T>
void merge_row(double* output, double& lse, const T* part, double part_lse, std::int64_t dv) {
  const double most = std::isnan(part_lse) || part_lse > lse ? part_lse : lse;
  if (most == -std::numeric_limits<double>::infinity()) {
    std::fill_n(output, dv, 0.0);
    return;
  }
  const double own = std::exp(lse - most), other = std::exp(part_lse - most), sum = own + other;
  const double a = own / sum, b = other / sum;
  for (std::int64_t c = 0; c < dv; ++c)
    output[c] = (a == 0 ? 0 : a * output[c]) + (b == 0 ? 0 : b * static_cast<double>(part[c]));
  lse = most + std::log(sum);
}

}  // namespace

// In place: a block's output is read once, while it is in a cache.
void Partial::add(const AttentionResult& part, std::int64_t first, std::int64_t heads) {
  constexpr std::int64_t rows_of_task = 64;
  const Tensor lse = part.lse.to(DType::f64).contiguous();
  const Tensor output = (part.output.dtype() == DType::f64 ? part.output : part.output.to(DType::f32)).contiguous();
  const std::int64_t count = output.size(1), rows = output.size(2), dv = output.size(3), all = lse.numel();
  if (!output_.defined()) {
    output_ = Tensor::empty({output.size(0), heads, rows, dv}, DType::f64);
    lse_ = Tensor::empty({output.size(0), heads, rows}, DType::f64);
    begun_.assign(static_cast<std::size_t>(heads), 0);
  }
  const auto add = [&](const auto* from) {
    parallel_for((all + rows_of_task - 1) / rows_of_task, 0, 2.0 * static_cast<double>(output.numel()),
                 [&](std::int64_t task, void*) {
                   for (std::int64_t r = task * rows_of_task; r < std::min(all, (task + 1) * rows_of_task); ++r) {
                     const std::int64_t head = first + r / rows % count;
                     const std::int64_t to = (r / rows / count * heads + head) * rows + r % rows;
                     double* const row = output_.data<double>() + to * dv;
                     double& row_lse = lse_.data<double>()[to];
                     if (begun_[static_cast<std::size_t>(head)]) {
                       merge_row(row, row_lse, from + r * dv, lse.data<double>()[r], dv);
                     } else {
                       std::copy_n(from + r * dv, dv, row), row_lse = lse.data<double>()[r];
                     }
                   }
                 });
  };
  output.dtype() == DType::f64 ? add(output.data<double>()) : add(output.data<float>());
  std::fill_n(begun_.begin() + first, count, 1);
}

void Partial::add_sinks(const Tensor& sinks, const Shape& output) {
  const Tensor all =
      sinks.to(DType::f64).contiguous().view({sinks.numel(), 1}).expand({output[0], output[1], output[2]});
  add({Tensor::zeros(output, DType::f64), all.contiguous()});
}

void Partial::store(const Tensor& output, const Tensor& lse) const {
  if (!output_.defined()) {
    output.fill(0), lse.fill(-std::numeric_limits<double>::infinity());
    return;
  }
  const AttentionResult result = merge(std::array{output_}, std::array{lse_}, output.dtype());
  output.copy_from(result.output), lse.copy_from(lse_);
}

}  // namespace attn::distributed
