// project: y = x · weightᵀ + bias
#include "attn/reference.hpp"
#include "reference/loops.hpp"

namespace attn::reference {

Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1), "project",
          "x (…, d_in) and weight (d_out, d_in)", x.shape().str() + " and " + weight.shape().str());
  Shape shape = leading(x.shape(), 1);
  shape.push_back(weight.size(0));
  const Tensor y = matmul(as_rows(x), weight.transpose(0, 1)).view(shape);
  if (!bias.defined()) return y;
  require(bias.shape() == Shape{weight.size(0)}, "project", "bias (d_out) for weight " + weight.shape().str(),
          bias.shape().str());
  require_same_dtype("project", weight, bias);
  visit_floating("project", y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor b = bias.contiguous();
    const std::int64_t n = b.numel();
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      y.data<T>()[i] = narrow<T>(widen(y.data<T>()[i]) + widen(b.data<T>()[i % n]));
    }
  });
  return y;
}

ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias) {
  const Tensor dy_rows = as_rows(dy), x_rows = as_rows(x);
  ProjectGradient grad;
  grad.x = matmul(dy_rows, weight).view(x.shape());       // y = x · weightᵀ
  grad.weight = matmul(dy_rows.transpose(0, 1), x_rows);  // y = x · weightᵀ
  if (has_bias) {                                         // y = … + bias, on every row
    const Tensor ones = Tensor::ones({1, dy_rows.size(0)}, dy.dtype());
    grad.bias = matmul(ones, dy_rows).view({dy.size(-1)});
  }
  return grad;
}

}  // namespace attn::reference
