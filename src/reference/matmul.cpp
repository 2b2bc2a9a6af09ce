// a · b: every product sum of the chapter.
#include "reference/matmul.hpp"

#include <algorithm>

#include "attn/reference.hpp"
#include "reference/loops.hpp"

namespace attn::reference {
namespace {

// The broadcast leading dimensions of a and b, with room for the last two of the result.
Shape result_shape(const Tensor& a, const Tensor& b) {
  const Shape la = leading(a.shape(), 2), lb = leading(b.shape(), 2);
  const Shape& longer = la.size() >= lb.size() ? la : lb;
  const Shape& shorter = la.size() >= lb.size() ? lb : la;
  Shape shape = longer;
  const std::size_t offset = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    const std::int64_t x = longer[offset + i], y = shorter[i];
    require(x == y || x == 1 || y == 1, "matmul", "leading sizes that broadcast",
            a.shape().str() + " and " + b.shape().str());
    shape[offset + i] = x == 1 ? y : x;
  }
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  return shape;
}

Tensor broadcast_matrices(const Tensor& x, const Shape& result) {
  Shape shape = leading(result, 2);
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  return as_matrices(x.expand(shape));
}

// a (m, k)  b (k, n)  →  c (m, n); b is read m times and so widened once.
template <class T>
void multiply(const T* a, const T* b, T* c, std::int64_t m, std::int64_t k, std::int64_t n, Zero zero) {
  std::vector<Wide<T>> wide_b(static_cast<std::size_t>(k * n)), sum(static_cast<std::size_t>(n));
  std::transform(b, b + k * n, wide_b.begin(), widen<T>);
  for (std::int64_t i = 0; i < m; ++i) {
    std::fill(sum.begin(), sum.end(), Wide<T>{0});
    for (std::int64_t l = 0; l < k; ++l) {
      const Wide<T> a_il = widen(a[i * k + l]);
      if (zero == Zero::skips && a_il == 0) continue;
      const Wide<T>* b_l = wide_b.data() + l * n;
      for (std::int64_t j = 0; j < n; ++j) sum[static_cast<std::size_t>(j)] += a_il * b_l[j];
    }
    std::transform(sum.begin(), sum.end(), c + i * n, narrow<T>);
  }
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) { return matmul(a, b, Zero::multiplies); }

Tensor matmul(const Tensor& a, const Tensor& b, Zero zero) {
  require(a.rank() >= 2 && b.rank() >= 2, "matmul", "at least two dimensions",
          a.shape().str() + " and " + b.shape().str());
  require(a.size(-1) == b.size(-2), "matmul", "(…, m, k) and (…, k, n)", a.shape().str() + " and " + b.shape().str());
  require_same_dtype("matmul", a, b);
  Tensor result = Tensor::empty(result_shape(a, b), a.dtype());
  const Tensor left = broadcast_matrices(a, result.shape()), right = broadcast_matrices(b, result.shape());
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  visit_floating("matmul", a.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < left.size(0); ++i) {
      multiply(left.data<T>() + i * m * k, right.data<T>() + i * k * n, result.data<T>() + i * m * n, m, k, n, zero);
    }
  });
  return result;
}

}  // namespace attn::reference
