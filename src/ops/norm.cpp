#include "attn/norm.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "attention/element.hpp"
#include "core/known.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/input.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr std::int64_t kRows = 16, kPartialRows = 256;  // of a task, forward and backward

float added(NormForm form) { return form == NormForm::rms_plus_one ? 1.f : 0.f; }

const float* at(const Tensor& x, std::int64_t first) { return x.defined() ? x.data<float>() + first : nullptr; }

}  // namespace

Norm::Norm(NormForm form, std::int64_t width, double epsilon, std::string_view name) : form_(form), epsilon_(epsilon) {
  require_known("Norm", "a form", form, NormForm::rms_plus_one);
  require_positive(op(), "width", width);
  require_epsilon(op(), epsilon);
  const std::string prefix = name.empty() ? "" : std::string(name) + ".";
  weight = {prefix + "weight", form == NormForm::rms_plus_one ? Tensor::zeros({width}) : Tensor::ones({width}), {}};
  bias = {prefix + "bias", form == NormForm::layer ? Tensor::zeros({width}) : Tensor{}, {}};
}

std::vector<Parameter*> Norm::parameters() {
  if (!bias.value.defined()) return {&weight};
  return {&weight, &bias};
}

// Rows of a task. RMSNorm's short ones, as those of heads, go together.
std::int64_t Norm::run(std::int64_t rows) const {
  return form_ == NormForm::layer ? rows : rows * std::max<std::int64_t>(1, 512 / x_.size(-1));
}

Tensor Norm::forward(const Tensor& x, Trace* trace) {
  const Tensor y = forward(x, DType::f32);
  if (trace) trace->record("output", y);
  return y;
}

Tensor Norm::forward(const Tensor& x, DType dtype) {
  require_present(weight);
  require_norm_input(op(), x, weight.value.numel(), dtype);
  if (form_ == NormForm::layer) require_norm_input(op(), x, bias.value.numel(), dtype);
  x_ = x.contiguous();
  mean_ = form_ == NormForm::layer ? Tensor::empty({row_count(x)}) : Tensor{};
  rstd_ = Tensor::empty({row_count(x)});
  const Tensor y = normalised(dtype);
  y_ = dtype == DType::bf16 ? y : Tensor{};
  if (!grad_enabled()) x_ = mean_ = rstd_ = y_ = {};
  return y;
}

Tensor Norm::output() const {
  require_forward(op(), x_.defined());
  return y_.defined() ? y_ : normalised(DType::f32);
}

Tensor Norm::normalised(DType dtype) const {
  const Tensor y = Tensor::empty(x_.shape(), dtype);
  const std::int64_t rows = row_count(x_), width = x_.size(-1), some = run(kRows);
  const auto epsilon = static_cast<float>(epsilon_);
  // Somebody may have put a column, or one number for all, in place of the weights.
  const bool has_bias = form_ == NormForm::layer;
  const Tensor scales = numbers_of(op(), weight, width), biases = has_bias ? numbers_of(op(), bias, width) : Tensor{};
  const float* scale = scales.data<float>();
  const kernels::ModelKernel& kernel = *kernels::active().model;
  parallel_for((rows + some - 1) / some, 0, 8 * static_cast<double>(x_.numel()), [&](std::int64_t task, void*) {
    const std::int64_t first = task * some, count = std::min(some, rows - first);
    const float* x = at(x_, first * width);
    float* rstd = rstd_.data<float>() + first;
    if (has_bias) {
      kernel.layer_norm({count, width, x, scale, biases.data<float>(), epsilon, element(dtype),
                         address(y, first * width), mean_.data<float>() + first, rstd});
    } else {
      kernel.rms_norm({count, width, x, scale, added(form_), epsilon, form_ == NormForm::rms, element(dtype),
                       address(y, first * width), rstd});
    }
  });
  return y;
}

Tensor Norm::backward(const Tensor& dy, const Tensor& residual) {
  require_forward(op(), x_.defined());
  require_present(weight);
  require_norm_gradient(op(), x_, dy, residual);
  const std::int64_t rows = row_count(x_), width = x_.size(-1), some = run(kPartialRows);
  const Tensor g = dy.contiguous(), dx = Tensor::empty(x_.shape());
  const Tensor beside = residual.defined() ? residual.contiguous() : residual;
  // Sums over the rows of a task, which are added up in order.
  const std::int64_t tasks = (rows + some - 1) / some;
  const Tensor d_weight = Tensor::zeros({tasks, width});
  const Tensor d_bias = form_ == NormForm::layer ? Tensor::zeros({tasks, width}) : Tensor{};
  const Tensor scales = numbers_of(op(), weight, width);
  const float* scale = scales.data<float>();
  const kernels::ModelKernel& kernel = *kernels::active().model;
  parallel_for(tasks, 0, 16 * static_cast<double>(x_.numel()), [&](std::int64_t task, void*) {
    const std::int64_t row = task * some, first = row * width, count = std::min(some, rows - row);
    float *to = dx.data<float>() + first, *weights = d_weight.data<float>() + task * width;
    if (form_ == NormForm::layer) {
      kernel.layer_norm_backward({count, width, at(g, first), at(x_, first), scale, at(mean_, row), at(rstd_, row),
                                  at(beside, first), to, weights, d_bias.data<float>() + task * width});
    } else {
      kernel.rms_norm_backward({count, width, at(g, first), at(x_, first), scale, at(rstd_, row), added(form_),
                                at(beside, first), to, weights});
    }
  });
  for (const auto& [parameter, partial] : {std::pair{&weight, d_weight}, {&bias, d_bias}}) {
    if (!partial.defined()) continue;
    const Tensor sum = Tensor::zeros({width});
    for (std::int64_t task = 0; task < tasks; ++task) add_in_place(sum, partial.select(0, task));
    accumulate(*parameter, sum);
  }
  return dx;
}

}  // namespace attn
