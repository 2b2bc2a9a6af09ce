// Averaging the past, three ways: attention before its weights depend on the data.
#include "attn/reference.hpp"
#include "reference/loops.hpp"
#include "reference/matmul.hpp"

namespace attn::reference {
namespace {

// out_i = (x_0 + … + x_i) / (i + 1), by a loop over batches, rows, and the rows before each.
Tensor average_by_loop(const Tensor& x) {
  const Tensor in = as_matrices(x);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const std::int64_t batch = in.size(0), tokens = in.size(1), d = in.size(2);
  visit_floating("average_past", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t b = 0; b < batch; ++b) {
      std::vector<Wide<T>> sum(static_cast<std::size_t>(d), 0);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t c = 0; c < d; ++c) {
          const std::int64_t at = (b * tokens + t) * d + c;
          auto& running = sum[static_cast<std::size_t>(c)];
          running += widen(in.data<T>()[at]);
          out.data<T>()[at] = narrow<T>(running / static_cast<Wide<T>>(t + 1));
        }
      }
    }
  });
  return out;
}

Tensor weights_of(std::int64_t tokens, AverageBy way, DType dtype) {
  const Tensor tril = tril_ones(tokens, tokens, dtype);
  if (way != AverageBy::softmax) return normalise_by_sum(tril);
  return softmax(mask_fill(Tensor::zeros({tokens, tokens}, dtype), tril.to(DType::boolean)));
}

}  // namespace

Tensor average_weights(std::int64_t tokens, AverageBy way) { return weights_of(tokens, way, DType::f32); }

Tensor average_past(const Tensor& x, AverageBy way) {
  require(x.rank() >= 2, "average_past", "x (…, tokens, d)", x.shape().str());
  if (way == AverageBy::loop) return average_by_loop(x);
  return matmul(weights_of(x.size(-2), way, x.dtype()), x, Zero::skips);
}

}  // namespace attn::reference
