// L2 norm and gated RMSNorm, on RMSNorm's kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/error.hpp"
#include "attn/recurrent_parts.hpp"
#include "core/known.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

constexpr std::int64_t kNormRows = 64;  // of a task

// x / √(Σ x² + ε) = √(1/d) · x / √(mean(x²) + ε/d): RMSNorm's kernel with a weight that is the same everywhere.
struct AsRmsNorm {
  AsRmsNorm(const char* op, const Tensor& in, double epsilon_in) {
    require_float32(op, "x", in);
    require_epsilon(op, epsilon_in);
    if (in.rank() < 1) throw Error(Error::Kind::shape, op, "x (…, width)", in.shape().str());
    x = in.contiguous(), width = in.size(-1), rows = row_count(in);
    const double share = 1 / static_cast<double>(width < 1 ? 1 : width);
    weight = Tensor::full({width}, std::sqrt(share));
    epsilon = std::max(static_cast<float>(epsilon_in * share), std::numeric_limits<float>::min());
    rstd = Tensor::empty({rows});
  }

  // f(first row, how many)
  template <class F>
  void each(const F& f) const {
    parallel_for((rows + kNormRows - 1) / kNormRows, 0, 16 * static_cast<double>(x.numel()),
                 [&](std::int64_t task, void*) { f(task * kNormRows, std::min(kNormRows, rows - task * kNormRows)); });
  }

  void forward(std::int64_t first, std::int64_t count, float* y) const {
    kernels::active().model->rms_norm({count, width, x.data<float>() + first * width, weight.data<float>(), 0, epsilon,
                                       false, kernels::Element::f32, y, rstd.data<float>() + first});
  }

  Tensor x, weight, rstd;
  std::int64_t width, rows;
  float epsilon;
};

}  // namespace

Tensor l2_norm(const Tensor& x, double epsilon) {
  const AsRmsNorm as("l2_norm", x, epsilon);
  const Tensor y = Tensor::empty(x.shape());
  as.each(
      [&](std::int64_t first, std::int64_t count) { as.forward(first, count, y.data<float>() + first * as.width); });
  return y;
}

Tensor l2_norm_backward(const Tensor& dy, const Tensor& x, double epsilon) {
  const AsRmsNorm as("l2_norm_backward", x, epsilon);
  require_norm_gradient("l2_norm_backward", as.x, dy, {});
  const Tensor g = dy.contiguous(), dx = Tensor::empty(x.shape());
  as.each([&](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * as.width;
    float* to = dx.data<float>() + at;
    as.forward(first, count, to);  // for rstd
    std::vector<float> of_weight(static_cast<std::size_t>(as.width));
    kernels::active().model->rms_norm_backward({count, as.width, g.data<float>() + at, as.x.data<float>() + at,
                                                as.weight.data<float>(), as.rstd.data<float>() + first, 0, nullptr, to,
                                                of_weight.data()});
  });
  return dx;
}

Tensor GatedNorm::forward(const Tensor& x, const Tensor& gate) {
  require_float32("GatedNorm", "x", x);
  require_known("GatedNorm", "order", order_, GatedNormOrder::after_gate);
  x_ = grad_enabled() ? x : Tensor{}, gate_ = grad_enabled() ? gate : Tensor{};
  if (order_ == GatedNormOrder::after_gate) return norm.forward(gated(gate, x, activation_));
  return gated(gate, norm.forward(x), activation_);
}

GatedNorm::Gradient GatedNorm::backward(const Tensor& dy) {
  require_forward("GatedNorm", x_.defined());
  if (order_ == GatedNormOrder::after_gate) {
    // y = norm(x · act(gate))
    const GatedGradient d = gated_backward(norm.backward(dy, {}), gate_, x_, activation_);
    return {d.up, d.gate};
  }
  // y = norm(x) · act(gate)
  const GatedGradient d = gated_backward(dy, gate_, norm.output(), activation_);
  return {norm.backward(d.up, {}), d.gate};
}

}  // namespace attn
