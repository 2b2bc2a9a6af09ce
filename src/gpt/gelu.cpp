#include "attn/gpt.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "modules/input.hpp"

namespace attn {

Tensor gelu(const Tensor& x, Gelu form) {
  require_float32("gelu", "x", x);
  const Tensor in = x.contiguous(), y = Tensor::empty(x.shape());
  const kernels::Kernels& kernel = kernels::active();
  for_runs(in.numel(), 20, [&](std::int64_t first, std::int64_t count) {
    kernel.gelu(form == Gelu::tanh, count, in.data<float>() + first, y.data<float>() + first);
  });
  return y;
}

Tensor gelu_backward(const Tensor& dy, const Tensor& x, Gelu form) {
  require_float32("gelu_backward", "x", x);
  require_float32("gelu_backward", "dy", dy);
  if (!(dy.shape() == x.shape())) {
    throw Error(Error::Kind::shape, "gelu_backward", "dy of x's shape " + x.shape().str(), dy.shape().str());
  }
  const Tensor in = x.contiguous(), g = dy.contiguous(), dx = Tensor::empty(x.shape());
  const kernels::Kernels& kernel = kernels::active();
  for_runs(in.numel(), 30, [&](std::int64_t first, std::int64_t count) {
    kernel.gelu_backward(form == Gelu::tanh, count, g.data<float>() + first, in.data<float>() + first,
                         dx.data<float>() + first);
  });
  return dx;
}

}  // namespace attn
