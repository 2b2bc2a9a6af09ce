// mask: which scores count. Two routes to the same weights.
#include <limits>

#include "attn/reference.hpp"
#include "reference/elementwise.hpp"

namespace attn::reference {

Tensor choose(const char* op, const Tensor& x, const Tensor& keep, double otherwise) {
  const Tensor in = x.contiguous(), kept = keep.expand(x.shape()).contiguous();
  const bool* allowed = kept.data<bool>();
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_floating(op, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T other = narrow<T>(static_cast<Wide<T>>(otherwise));
    for (std::int64_t i = 0; i < in.numel(); ++i) out.data<T>()[i] = allowed[i] ? in.data<T>()[i] : other;
  });
  return out;
}

Tensor mask_fill(const Tensor& s, const Tensor& keep) {
  return choose("mask_fill", s, keep, -std::numeric_limits<double>::infinity());
}

Tensor mask_zero(const Tensor& weights, const Tensor& keep) { return choose("mask_zero", weights, keep, 0); }

Tensor mask_renormalise(const Tensor& weights, const Tensor& keep) {
  return map_rows("mask_renormalise", mask_zero(weights, keep), [](const auto& row) {
    std::decay_t<decltype(row[0])> sum = 0;
    for (const auto w : row) sum += w;
    for (auto& w : row) w = sum == 0 ? 0 : w / sum;  // a row with every key masked gives zeros
  });
}

}  // namespace attn::reference
