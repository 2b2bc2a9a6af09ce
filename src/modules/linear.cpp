#include <cmath>

#include "modules/dense.hpp"
#include "modules/input.hpp"

namespace attn {

Linear::Linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, Generator& rng, std::string_view name) {
  require_positive("Linear", "d_in", d_in);
  require_positive("Linear", "d_out", d_out);
  const std::string prefix = name.empty() ? "" : std::string(name) + ".";
  // kaiming_uniform_(a = √5) comes to 1/√d_in, as a double.
  const double bound = 1 / std::sqrt(static_cast<double>(d_in));
  weight = {prefix + "weight", rng.uniform({d_out, d_in}, -bound, bound), {}};
  bias = {prefix + "bias", has_bias ? rng.uniform({d_out}, -bound, bound) : Tensor{}, {}};
}

Tensor Linear::forward(const Tensor& x, Trace* trace) {
  const Tensor y = project(x, weight.value, bias.value);
  if (trace) trace->record("output", y);
  return y;
}

Tensor Linear::backward(const Tensor& dy, const Tensor& x) {
  // y = x · weightᵀ + bias
  const auto grad = project_backward(dy, x, weight.value, bias.value.defined());
  accumulate(weight, grad.weight);
  if (bias.value.defined()) accumulate(bias, grad.bias);
  return grad.x;
}

std::vector<Parameter*> Linear::parameters() {
  if (!bias.value.defined()) return {&weight};
  return {&weight, &bias};
}

}  // namespace attn
