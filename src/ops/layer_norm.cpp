#include <cmath>
#include <string>
#include <vector>

#include "attention/element.hpp"
#include "attn/gpt.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/input.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kOp = "LayerNorm";
constexpr std::int64_t kRows = 16, kPartialRows = 256;  // of a task, forward and backward

}  // namespace

LayerNorm::LayerNorm(std::int64_t width, double epsilon, std::string_view name) : epsilon_(epsilon) {
  require_positive(kOp, "width", width);
  if (!(epsilon > 0 && std::isfinite(epsilon)))
    throw Error(Error::Kind::argument, kOp, "a finite epsilon > 0", std::to_string(epsilon));
  const std::string prefix = name.empty() ? "" : std::string(name) + ".";
  weight = {prefix + "weight", Tensor::ones({width}), {}};
  bias = {prefix + "bias", Tensor::zeros({width}), {}};
}

Tensor LayerNorm::forward(const Tensor& x, Trace* trace) {
  const Tensor y = forward(x, DType::f32);
  if (trace) trace->record("output", y);
  return y;
}

Tensor LayerNorm::forward(const Tensor& x, DType dtype) {
  require_present(weight);
  require_norm_input(kOp, x, weight.value.numel(), dtype);
  x_ = x.contiguous();
  mean_ = Tensor::empty({row_count(x)}), rstd_ = Tensor::empty({row_count(x)});
  const Tensor y = normalised(dtype);
  y_ = dtype == DType::bf16 ? y : Tensor{};
  return y;
}

Tensor LayerNorm::output() const {
  require_forward(kOp, x_.defined());
  return y_.defined() ? y_ : normalised(DType::f32);
}

Tensor LayerNorm::normalised(DType dtype) const {
  const Tensor y = Tensor::empty(x_.shape(), dtype);
  const std::int64_t rows = row_count(x_), width = x_.size(-1);
  const kernels::ModelKernel& kernel = *kernels::active().model;
  parallel_for((rows + kRows - 1) / kRows, 0, 8 * static_cast<double>(x_.numel()), [&](std::int64_t task, void*) {
    const std::int64_t first = task * kRows;
    kernel.layer_norm({std::min(kRows, rows - first), width, x_.data<float>() + first * width,
                       weight.value.data<float>(), bias.value.data<float>(), static_cast<float>(epsilon_),
                       element(dtype), address(y, first * width), mean_.data<float>() + first,
                       rstd_.data<float>() + first});
  });
  return y;
}

Tensor LayerNorm::backward(const Tensor& dy, const Tensor& residual) {
  require_forward(kOp, x_.defined());
  require_present(weight);
  require_norm_gradient(kOp, x_, dy, residual);
  const std::int64_t rows = row_count(x_), width = x_.size(-1);
  const Tensor g = dy.contiguous();
  const Tensor added = residual.defined() ? residual.contiguous() : residual, dx = Tensor::empty(x_.shape());
  // Sums over the rows of a task, which are added up in order.
  const std::int64_t tasks = (rows + kPartialRows - 1) / kPartialRows;
  const Tensor d_weight = Tensor::zeros({tasks, width}), d_bias = Tensor::zeros({tasks, width});
  const kernels::ModelKernel& kernel = *kernels::active().model;
  parallel_for(tasks, 0, 16 * static_cast<double>(x_.numel()), [&](std::int64_t task, void*) {
    const std::int64_t first = task * kPartialRows, at = first * width;
    kernel.layer_norm_backward({std::min(kPartialRows, rows - first), width, g.data<float>() + at,
                                x_.data<float>() + at, weight.value.data<float>(), mean_.data<float>() + first,
                                rstd_.data<float>() + first, added.defined() ? added.data<float>() + at : nullptr,
                                dx.data<float>() + at, d_weight.data<float>() + task * width,
                                d_bias.data<float>() + task * width});
  });
  for (const auto& [parameter, partial] : {std::pair{&weight, d_weight}, {&bias, d_bias}}) {
    const Tensor sum = Tensor::zeros({width});
    for (std::int64_t task = 0; task < tasks; ++task) add_in_place(sum, partial.select(0, task));
    accumulate(*parameter, sum);
  }
  return dx;
}

}  // namespace attn
