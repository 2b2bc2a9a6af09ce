#include "ops/activation.hpp"

#include "attention/element.hpp"
#include "core/known.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

kernels::Activation of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return kernels::Activation::silu;
    case Activation::gelu_tanh:
      return kernels::Activation::gelu_tanh;
    case Activation::sigmoid:
      return kernels::Activation::sigmoid;
    case Activation::gelu:
      break;
  }
  return kernels::Activation::gelu;
}

void require_stored(const char* op, const char* what, const Tensor& x) {
  if (!x.defined() || x.dtype() != DType::bf16) require_float32(op, what, x);
}

void require_pair(const Tensor& gate, const Tensor& up, Activation activation) {
  require_known("gated", "an activation", activation, Activation::sigmoid);
  for (const Tensor* x : {&gate, &up}) require_stored("gated", "gate and up", *x);
  if (!(gate.shape() == up.shape()) || gate.dtype() != up.dtype()) {
    throw Error(Error::Kind::shape, "gated", "gate and up of one shape and dtype",
                gate.shape().str() + " and " + up.shape().str());
  }
}

}  // namespace

Tensor gelu(const Tensor& x, Activation form) {
  require_gelu("gelu", form);
  require_stored("gelu", "x", x);
  const Tensor in = x.contiguous(), y = Tensor::empty(x.shape(), x.dtype());
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(in.numel(), 20, [&](std::int64_t first, std::int64_t count) {
    kernel.gelu(
        {form == Activation::gelu_tanh, element(x.dtype()), count, nullptr, address(in, first), address(y, first)});
  });
  return y;
}

Tensor gelu_backward(const Tensor& dy, const Tensor& x, Activation form) {
  require_gelu("gelu_backward", form);
  require_stored("gelu_backward", "x", x);
  require_stored("gelu_backward", "dy", dy);
  if (!(dy.shape() == x.shape())) {
    throw Error(Error::Kind::shape, "gelu_backward", "dy of x's shape " + x.shape().str(), dy.shape().str());
  }
  const Tensor in = x.contiguous(), g = dy.to(x.dtype()).contiguous(), dx = Tensor::empty(x.shape(), x.dtype());
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(in.numel(), 30, [&](std::int64_t first, std::int64_t count) {
    kernel.gelu_backward({form == Activation::gelu_tanh, element(x.dtype()), count, address(g, first),
                          address(in, first), address(dx, first)});
  });
  return dx;
}

Tensor gated(const Tensor& gate_in, const Tensor& up_in, Activation activation) {
  require_pair(gate_in, up_in, activation);
  const Tensor gate = gate_in.contiguous(), up = up_in.contiguous(), y = Tensor::empty(gate.shape(), gate.dtype());
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(y.numel(), 20, [&](std::int64_t first, std::int64_t count) {
    kernel.gated({of(activation), element(y.dtype()), count, address(gate, first), address(up, first), nullptr,
                  address(y, first), nullptr});
  });
  return y;
}

GatedGradient gated_backward(const Tensor& dy, const Tensor& gate_in, const Tensor& up_in, Activation activation) {
  require_pair(gate_in, up_in, activation);
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

}  // namespace attn
