// a · b: every product sum of the chapter.
#include "reference/matmul.hpp"

#include <algorithm>

#include "attn/reference.hpp"
#include "core/parallel.hpp"
#include "core/processors.hpp"
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

// A tile of sums of type W, which stay in registers: of long double, x86 has eight.
template <class W>
constexpr std::int64_t kRows = std::is_same_v<W, long double> ? 2 : 4;
template <class W>
constexpr std::int64_t kColumns = std::is_same_v<W, long double> ? 2 : 8;
template <class W>
struct Tile {
  W sums[kRows<W>][kColumns<W>] = {};
};

// a (k, rows)  b (k, columns). Each sum takes its products in the order of k.
template <bool skips, class W>
ATTN_FOR_EACH_PROCESSOR Tile<W> multiply_tile(const double* a, const double* b, std::int64_t k) {
  Tile<W> tile;
  for (std::int64_t l = 0; l < k; ++l, a += kRows<W>, b += kColumns<W>) {
    for (std::int64_t x = 0; x < kRows<W>; ++x) {
      const W a_xl = a[x];
      if (skips && a_xl == 0) continue;
      for (std::int64_t y = 0; y < kColumns<W>; ++y) tile.sums[x][y] += a_xl * b[y];
    }
  }
  return tile;
}

// a (rows, k) → (k, tile's rows), where rows that are not there are zeros. How many columns come before the zeros at
// the end of all rows?
template <class W, class T>
std::int64_t pack_rows(const T* a, std::int64_t rows, std::int64_t k, double* to) {
  std::int64_t used = 0;
  for (std::int64_t l = 0; l < k; ++l) {
    for (std::int64_t x = 0; x < kRows<W>; ++x) {
      *to = x < rows ? to_double(a[x * k + l]) : 0;
      if (*to++ != 0) used = l + 1;
    }
  }
  return used;
}

// b (k, n) → tiles (k, tile's columns), one after the other. Is every number finite?
template <class W, class T>
bool pack_columns(const T* b, std::int64_t k, std::int64_t n, double* to) {
  bool finite = true;
  for (std::int64_t j = 0; j < n; j += kColumns<W>) {
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t y = 0; y < kColumns<W>; ++y) {
        *to = j + y < n ? to_double(b[l * n + j + y]) : 0;
        finite &= std::isfinite(*to++);
      }
    }
  }
  return finite;
}

template <class T>
std::int64_t packed_numbers(std::int64_t k, std::int64_t n) {
  return k * (kRows<Wide<T>> + n + kColumns<Wide<T>> - 1);
}

// a (m, k)  b (k, n)  →  c (m, n)
template <class T>
void multiply(Zero zero, const T* a, const T* b, T* c, std::int64_t m, std::int64_t k, std::int64_t n, double* packed) {
  using W = Wide<T>;
  double* const columns = packed + k * kRows<W>;
  // From finite numbers a zero takes nothing in any case.
  const bool finite = pack_columns<W>(b, k, n, columns), skips = zero == Zero::skips && !finite;
  const auto multiply_one = skips ? multiply_tile<true, W> : multiply_tile<false, W>;
  for (std::int64_t i = 0; i < m; i += kRows<W>) {
    const std::int64_t rows = std::min(kRows<W>, m - i), used = pack_rows<W>(a + i * k, rows, k, packed);
    for (std::int64_t j = 0; j < n; j += kColumns<W>) {
      const Tile<W> tile = multiply_one(packed, columns + j * k, finite || skips ? used : k);
      for (std::int64_t x = 0; x < rows; ++x) {
        for (std::int64_t y = 0; y < std::min(kColumns<W>, n - j); ++y)
          c[(i + x) * n + j + y] = narrow<T>(tile.sums[x][y]);
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
    const std::size_t packed = static_cast<std::size_t>(packed_numbers<T>(k, n)) * sizeof(double);
    const double operations = 2.0 * static_cast<double>(result.numel()) * static_cast<double>(k);
    parallel_for(left.size(0), packed, operations, [&](std::int64_t i, void* scratch) {
      multiply(zero, a_all + i * m * k, b_all + i * k * n, c_all + i * m * n, m, k, n, static_cast<double*>(scratch));
    });
  });
  return result;
}

}  // namespace attn::reference
