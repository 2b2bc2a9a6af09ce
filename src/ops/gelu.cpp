#include "attention/element.hpp"
#include "attn/gpt.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

void require_stored(const char* op, const char* what, const Tensor& x) {
  if (!x.defined() || x.dtype() != DType::bf16) require_float32(op, what, x);
}

}  // namespace

Tensor gelu(const Tensor& x, Gelu form) {
  require_stored("gelu", "x", x);
  const Tensor in = x.contiguous(), y = Tensor::empty(x.shape(), x.dtype());
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(in.numel(), 20, [&](std::int64_t first, std::int64_t count) {
    kernel.gelu({form == Gelu::tanh, element(x.dtype()), count, nullptr, address(in, first), address(y, first)});
  });
  return y;
}

Tensor gelu_backward(const Tensor& dy, const Tensor& x, Gelu form) {
  require_stored("gelu_backward", "x", x);
  require_stored("gelu_backward", "dy", dy);
  if (!(dy.shape() == x.shape())) {
    throw Error(Error::Kind::shape, "gelu_backward", "dy of x's shape " + x.shape().str(), dy.shape().str());
  }
  const Tensor in = x.contiguous(), g = dy.to(x.dtype()).contiguous(), dx = Tensor::empty(x.shape(), x.dtype());
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for_runs(in.numel(), 30, [&](std::int64_t first, std::int64_t count) {
    kernel.gelu_backward(
        {form == Gelu::tanh, element(x.dtype()), count, address(g, first), address(in, first), address(dx, first)});
  });
  return dx;
}

}  // namespace attn
