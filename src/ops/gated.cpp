#include <string>

#include "attention/element.hpp"
#include "attn/blocks.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

kernels::Activation of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return kernels::Activation::silu;
    case Activation::gelu_tanh:
      return kernels::Activation::gelu_tanh;
    case Activation::gelu:
      break;
  }
  return kernels::Activation::gelu;
}

void check(const Tensor& gate, const Tensor& up) {
  for (const Tensor* x : {&gate, &up}) {
    if (!x->defined() || x->dtype() != DType::bf16) require_float32("gated", "gate and up", *x);
  }
  if (!(gate.shape() == up.shape()) || gate.dtype() != up.dtype()) {
    throw Error(Error::Kind::shape, "gated", "gate and up of one shape and dtype",
                gate.shape().str() + " and " + up.shape().str());
  }
}

}  // namespace

Tensor gated(const Tensor& gate_in, const Tensor& up_in, Activation activation) {
  check(gate_in, up_in);
  const Tensor gate = gate_in.contiguous(), up = up_in.contiguous(), y = Tensor::empty(gate.shape(), gate.dtype());
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(y.numel(), 20, [&](std::int64_t first, std::int64_t count) {
    kernel.gated({of(activation), element(y.dtype()), count, address(gate, first), address(up, first), nullptr,
                  address(y, first), nullptr});
  });
  return y;
}

GatedGradient gated_backward(const Tensor& dy, const Tensor& gate_in, const Tensor& up_in, Activation activation) {
  check(gate_in, up_in);
  if (!(dy.shape() == gate_in.shape())) {
    throw Error(Error::Kind::shape, "gated_backward", "dy of gate's shape " + gate_in.shape().str(), dy.shape().str());
  }
  const Tensor gate = gate_in.contiguous(), up = up_in.contiguous(), g = dy.to(gate.dtype()).contiguous();
  const GatedGradient d{Tensor::empty(gate.shape(), gate.dtype()), Tensor::empty(gate.shape(), gate.dtype())};
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(g.numel(), 30, [&](std::int64_t first, std::int64_t count) {
    kernel.gated_backward({of(activation), element(g.dtype()), count, address(gate, first), address(up, first),
                           address(g, first), address(d.gate, first), address(d.up, first)});
  });
  return d;
}

GatedFeedForward::GatedFeedForward(std::int64_t width, std::int64_t inner_width, Activation activation, bool has_bias,
                                   std::string_view prefix)
    : gate_proj(width, inner_width, has_bias, std::string(prefix) + "gate_proj"),
      up_proj(width, inner_width, has_bias, std::string(prefix) + "up_proj"),
      down_proj(inner_width, width, has_bias, std::string(prefix) + "down_proj"),
      activation_(activation) {}

Tensor GatedFeedForward::forward(const Tensor& x, Trace* trace) {
  const DType kept = stored(gate_proj.precision);
  x_ = x;
  gate_ = linear(gate_proj, x, kept);
  up_ = linear(up_proj, x, kept);
  const Tensor y = linear(down_proj, gated(gate_, up_, activation_), DType::f32);
  if (trace) trace->record("output", y);
  return y;
}

Module::Gradient GatedFeedForward::backward(const Tensor& dy) {
  require_forward("GatedFeedForward", x_.defined());
  // y = down_proj(activation(gate) · up)
  const Tensor d_inner = linear_backward(down_proj, dy, gated(gate_, up_, activation_), gate_.dtype());
  const GatedGradient d = gated_backward(d_inner, gate_, up_, activation_);
  // gate = gate_proj(x), up = up_proj(x)
  const Tensor dx = linear_backward(gate_proj, d.gate, x_, DType::f32);
  return {linear_backward(up_proj, d.up, x_, DType::f32, dx), {}};
}

std::vector<Parameter*> GatedFeedForward::parameters() {
  std::vector<Parameter*> all;
  for (Linear* layer : {&gate_proj, &up_proj, &down_proj}) {
    for (Parameter* p : layer->parameters()) all.push_back(p);
  }
  return all;
}

void GatedFeedForward::set_precision(Precision precision) {
  for (Linear* layer : {&gate_proj, &up_proj, &down_proj}) layer->precision = precision;
}

}  // namespace attn
