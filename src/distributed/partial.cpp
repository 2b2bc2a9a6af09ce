#include "distributed/partial.hpp"

#include <array>
#include <limits>

namespace attn::distributed {

void Partial::add(const AttentionResult& part) {
  const Tensor output = part.output.to(DType::f64), lse = part.lse.to(DType::f64);
  if (!output_.defined()) {
    output_ = output, lse_ = lse;
    return;
  }
  const AttentionResult both = merge(std::array{output_, output}, std::array{lse_, lse});
  output_ = both.output, lse_ = both.lse;
}

void Partial::add_sinks(const Tensor& sinks, const Shape& output) {
  const Tensor all =
      sinks.to(DType::f64).contiguous().view({sinks.numel(), 1}).expand({output[0], output[1], output[2]});
  add({Tensor::zeros(output, DType::f64), all.contiguous(), {}});
}

void Partial::store(const Tensor& output, const Tensor& lse) const {
  if (!output_.defined()) {
    output.fill(0), lse.fill(-std::numeric_limits<double>::infinity());
    return;
  }
  const AttentionResult result = merge(std::array{output_}, std::array{lse_}, output.dtype());
  output.copy_from(result.output), lse.copy_from(lse_);
}

}  // namespace attn::distributed
