#include "reference/sum_to.hpp"

#include "reference/loops.hpp"

namespace attn::reference {

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const Tensor in = x.contiguous();
  // Element i of x adds to element offset(i) of the result: repeated dimensions have stride 0.
  const Shape strides = Tensor::empty(shape, x.dtype()).expand(x.shape()).strides();
  Tensor out = Tensor::empty(shape, x.dtype());
  visit_floating("sum_to", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<Wide<T>> sum(static_cast<std::size_t>(out.numel()), 0);
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      std::int64_t rest = i, offset = 0;
      for (std::size_t dim = x.rank(); dim-- > 0; rest /= x.shape()[dim])
        offset += rest % x.shape()[dim] * strides[dim];
      sum[static_cast<std::size_t>(offset)] += widen(in.data<T>()[i]);
    }
    for (std::int64_t i = 0; i < out.numel(); ++i) out.data<T>()[i] = narrow<T>(sum[static_cast<std::size_t>(i)]);
  });
  return out;
}

}  // namespace attn::reference
