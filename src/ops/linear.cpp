#include <cmath>

#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

// The products below read as many rows of both as dy has.
void require_gradient(const Linear& layer, const Tensor& dy, const Tensor& x) {
  const Tensor& weight = layer.weight.value;
  Shape shape = x.shape();
  if (x.rank() < 1 || x.size(-1) != weight.size(1)) {
    throw Error(Error::Kind::shape, "Linear", "x (…, " + std::to_string(weight.size(1)) + ")", shape.str());
  }
  shape.back() = weight.size(0);
  if (!(dy.shape() == shape)) {
    throw Error(Error::Kind::shape, "Linear", "dy of the output's shape " + shape.str(), dy.shape().str());
  }
}

}  // namespace

Linear::Linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, std::string_view name) {
  require_positive("Linear", "d_in", d_in);
  require_positive("Linear", "d_out", d_out);
  const std::string prefix = name.empty() ? "" : std::string(name) + ".";
  weight = {prefix + "weight", Tensor::zeros({d_out, d_in}), {}};
  bias = {prefix + "bias", has_bias ? Tensor::zeros({d_out}) : Tensor{}, {}};
}

Linear::Linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, Generator& rng, std::string_view name)
    : Linear(d_in, d_out, has_bias, name) {
  // kaiming_uniform_(a = √5) comes to 1/√d_in, as a double.
  const double bound = 1 / std::sqrt(static_cast<double>(d_in));
  weight.value = rng.uniform({d_out, d_in}, -bound, bound);
  if (has_bias) bias.value = rng.uniform({d_out}, -bound, bound);
}

Tensor Linear::forward(const Tensor& x, Trace* trace) {
  const Tensor y = linear(*this, x, x.dtype());
  if (trace) trace->record("output", y);
  return y;
}

Tensor Linear::backward(const Tensor& dy, const Tensor& x) { return linear_backward(*this, dy, x, x.dtype()); }

Tensor linear(const Linear& layer, const Tensor& x, DType dtype) {
  require_present(layer.weight);
  return project(x, layer.weight.value, layer.bias.value,
                 {layer.precision, dtype, {}, layer.weight.scales, layer.weight.blocks.get()});
}

Tensor linear_backward(Linear& layer, const Tensor& dy, const Tensor& x, DType dtype, const Tensor& residual) {
  require_present(layer.weight);
  require_gradient(layer, dy, x);
  // y = x · weightᵀ + bias
  const bool has_bias = layer.bias.value.defined();
  const Tensor d = x.dtype() == DType::bf16 && dy.dtype() == DType::f32 ? rounded(dy) : dy;
  ProductOptions options{layer.precision, dtype, residual};
  options.weight_gradient = layer.weight.requires_grad || layer.bias.requires_grad;
  const auto grad = project_backward(d, x, layer.weight.value, has_bias, options);
  accumulate(layer.weight, grad.weight);
  if (has_bias) accumulate(layer.bias, grad.bias);
  return grad.x;
}

std::vector<Parameter*> Linear::parameters() {
  if (!bias.value.defined()) return {&weight};
  return {&weight, &bias};
}

}  // namespace attn
