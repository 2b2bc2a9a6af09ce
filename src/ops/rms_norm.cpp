#include <string>

#include "attention/element.hpp"
#include "attn/blocks.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/input.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kOp = "RMSNorm";
constexpr std::int64_t kRows = 16, kPartialRows = 256;  // of a task, forward and backward

float added(RmsWeight form) { return form == RmsWeight::plus_one ? 1.f : 0.f; }

// Rows of a task: short ones, as those of heads, go together.
std::int64_t run_of(std::int64_t rows, std::int64_t width) { return rows * std::max<std::int64_t>(1, 512 / width); }

}  // namespace

RMSNorm::RMSNorm(std::int64_t width, double epsilon, RmsWeight form, std::string_view name)
    : epsilon_(epsilon), form_(form) {
  require_positive(kOp, "width", width);
  require_finite(kOp, "epsilon", epsilon, 0);
  const std::string prefix = name.empty() ? "" : std::string(name) + ".";
  weight = {prefix + "weight", form == RmsWeight::plus_one ? Tensor::zeros({width}) : Tensor::ones({width}), {}};
}

Tensor RMSNorm::forward(const Tensor& x, Trace* trace) {
  const Tensor y = forward(x, DType::f32);
  if (trace) trace->record("output", y);
  return y;
}

Tensor RMSNorm::forward(const Tensor& x, DType dtype) {
  require_present(weight);
  const std::int64_t width = weight.value.numel();
  require_norm_input(kOp, x, width, dtype);
  x_ = x.contiguous();
  const std::int64_t rows = row_count(x_), run = run_of(kRows, width);
  rstd_ = Tensor::empty({rows});
  const Tensor y = Tensor::empty(x_.shape(), dtype);
  const kernels::ModelKernel& kernel = *kernels::active().model;
  parallel_for((rows + run - 1) / run, 0, 6 * static_cast<double>(x_.numel()), [&](std::int64_t task, void*) {
    const std::int64_t first = task * run;
    kernel.rms_norm({std::min(run, rows - first), width, x_.data<float>() + first * width, weight.value.data<float>(),
                     added(form_), static_cast<float>(epsilon_), form_ == RmsWeight::scales, element(dtype),
                     address(y, first * width), rstd_.data<float>() + first});
  });
  return y;
}

Tensor RMSNorm::backward(const Tensor& dy, const Tensor& residual) {
  require_forward(kOp, x_.defined());
  require_present(weight);
  require_norm_gradient(kOp, x_, dy, residual);
  const std::int64_t rows = row_count(x_), width = x_.size(-1), run = run_of(kPartialRows, width);
  const Tensor g = dy.contiguous();
  const Tensor beside = residual.defined() ? residual.contiguous() : residual, dx = Tensor::empty(x_.shape());
  // Sums over the rows of a task, which are added up in order.
  const std::int64_t tasks = (rows + run - 1) / run;
  const Tensor d_weight = Tensor::zeros({tasks, width}), sum = Tensor::zeros({width});
  const kernels::ModelKernel& kernel = *kernels::active().model;
  parallel_for(tasks, 0, 12 * static_cast<double>(x_.numel()), [&](std::int64_t task, void*) {
    const std::int64_t first = task * run, at = first * width;
    kernel.rms_norm_backward({std::min(run, rows - first), width, g.data<float>() + at, x_.data<float>() + at,
                              weight.value.data<float>(), rstd_.data<float>() + first, added(form_),
                              beside.defined() ? beside.data<float>() + at : nullptr, dx.data<float>() + at,
                              d_weight.data<float>() + task * width});
  });
  for (std::int64_t task = 0; task < tasks; ++task) add_in_place(sum, d_weight.select(0, task));
  accumulate(weight, sum);
  return dx;
}

}  // namespace attn
