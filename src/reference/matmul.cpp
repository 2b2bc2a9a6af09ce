// a · b: every product sum of the chapter.
#include "reference/matmul.hpp"

#include <algorithm>

#include "attn/reference.hpp"
#include "core/parallel.hpp"
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

// b is widened once, but for float64, since long double takes longer to read than to make.
template <class T>
using Packed = std::conditional_t<std::is_same_v<T, double>, double, Wide<T>>;

// a (m, k)  b (k, n)  →  c (m, n), in square tiles of sums that stay in registers; for long double x86 has eight. Each
// sum takes its products in the order of k. packed: room for b in columns of a tile: k · n rounded up to one.
template <Zero zero, class T>
void multiply(const T* a, const T* b, T* c, std::int64_t m, std::int64_t k, std::int64_t n, Packed<T>* packed) {
  constexpr std::int64_t tile = std::is_same_v<T, double> ? 2 : 4;
  for (std::int64_t j = 0; j < n; j += tile) {
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t y = 0; y < tile; ++y) {
        packed[j * k + l * tile + y] = j + y < n ? static_cast<Packed<T>>(to_double(b[l * n + j + y])) : 0;
      }
    }
  }
  for (std::int64_t i = 0; i < m; i += tile) {
    const std::int64_t rows = std::min(tile, m - i);
    for (std::int64_t j = 0; j < n; j += tile) {
      Wide<T> sum[tile][tile] = {};
      for (std::int64_t l = 0; l < k; ++l) {
        const Packed<T>* b_l = packed + j * k + l * tile;
        for (std::int64_t x = 0; x < tile; ++x) {
          const Wide<T> a_il = widen(a[(i + std::min(x, rows - 1)) * k + l]);
          if (zero == Zero::skips && a_il == 0) continue;
          for (std::int64_t y = 0; y < tile; ++y) sum[x][y] += a_il * b_l[y];
        }
      }
      for (std::int64_t x = 0; x < rows; ++x) {
        for (std::int64_t y = 0; y < std::min(tile, n - j); ++y) c[(i + x) * n + j + y] = narrow<T>(sum[x][y]);
      }
    }
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
    const T *a_all = left.data<T>(), *b_all = right.data<T>();
    T* c_all = result.data<T>();
    const std::size_t packed = static_cast<std::size_t>(k * (n + 3)) * sizeof(Packed<T>);
    const double operations = 2.0 * static_cast<double>(result.numel()) * static_cast<double>(k);
    parallel_for(left.size(0), packed, operations, [&](std::int64_t i, void* scratch) {
      const auto one = zero == Zero::skips ? multiply<Zero::skips, T> : multiply<Zero::multiplies, T>;
      one(a_all + i * m * k, b_all + i * k * n, c_all + i * m * n, m, k, n, static_cast<Packed<T>*>(scratch));
    });
  });
  return result;
}

}  // namespace attn::reference
