#include "report/pca.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/order.hpp"
#include "core/processors.hpp"

namespace attn::report_page {
namespace {

constexpr std::size_t kShown = 3, kBlock = 8;  // more columns than shown: closer eigenvalues come apart sooner
constexpr int kIterations = 60;

using Row = std::array<double, kBlock>;
using Square = std::array<Row, kBlock>;

// A matrix of at most kBlock columns, row by row; columns that are not used are zero.
using Columns = std::vector<Row>;

// n rows of d numbers.
struct Rows {
  std::size_t n = 0, d = 0;
  std::vector<double> values;

  double* operator[](std::size_t i) { return values.data() + i * d; }
  const double* operator[](std::size_t i) const { return values.data() + i * d; }
};

// aᵀ · b
Square products(const Columns& a, const Columns& b) {
  Square sums{};
  for (std::size_t k = 0; k < a.size(); ++k) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      for (std::size_t j = 0; j < kBlock; ++j) sums[i][j] += a[k][i] * b[k][j];
    }
  }
  return sums;
}

// v · square
Columns times(const Columns& v, const Square& square) {
  Columns out(v.size());
  for (std::size_t k = 0; k < v.size(); ++k) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      for (std::size_t j = 0; j < kBlock; ++j) out[k][j] += v[k][i] * square[i][j];
    }
  }
  return out;
}

double dot(const Columns& v, std::size_t i, std::size_t j) {
  double sum = 0;
  for (const Row& row : v) sum += row[i] * row[j];
  return sum;
}

// Gram and Schmidt, twice is enough (Giraud et al. 2005); what is no direction of its own becomes zero.
void orthonormalise(Columns& v) {
  for (std::size_t i = 0; i < kBlock; ++i) {
    const double before = std::sqrt(dot(v, i, i));
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < i; ++j) {
        const double along = dot(v, i, j);
        for (Row& row : v) row[i] -= along * row[j];
      }
    }
    const double length = std::sqrt(dot(v, i, i));
    constexpr double nothing = 1e-12;
    for (Row& row : v) row[i] = length > nothing * before && length > 0 ? row[i] / length : 0;
  }
}

// Rows centred on their mean, float64.
Rows centred_rows(const Tensor& x) {
  Rows rows{static_cast<std::size_t>(x.size(0)), static_cast<std::size_t>(x.size(1)), {}};
  const Tensor wide = x.to(DType::f64).contiguous();
  rows.values.assign(wide.data<double>(), wide.data<double>() + wide.numel());
  std::vector<double> mean(rows.d);
  for (std::size_t i = 0; i < rows.n; ++i) {
    for (std::size_t k = 0; k < rows.d; ++k) {
      double& value = rows[i][k];
      if (!std::isfinite(value)) value = 0;
      mean[k] += value / static_cast<double>(rows.n);
    }
  }
  for (std::size_t i = 0; i < rows.n; ++i)
    std::transform(rows[i], rows[i] + rows.d, mean.begin(), rows[i], std::minus<>());
  return rows;
}

using Vector [[gnu::vector_size(sizeof(Row))]] = double;

// rows · v; four rows at once, whose sums do not wait for each other.
ATTN_FOR_EACH_PROCESSOR Columns along(const Rows& rows, const Columns& v) {
  Columns out(rows.n);
  for (std::size_t first = 0; first < rows.n; first += 4) {
    const std::size_t last = rows.n - 1,
                      i[4] = {first, std::min(first + 1, last), std::min(first + 2, last), std::min(first + 3, last)};
    Vector sums[4] = {};
    for (std::size_t k = 0; k < rows.d; ++k) {
      Vector x;
      std::memcpy(&x, v[k].data(), sizeof x);
      sums[0] += rows[i[0]][k] * x, sums[1] += rows[i[1]][k] * x;
      sums[2] += rows[i[2]][k] * x, sums[3] += rows[i[3]][k] * x;
    }
    for (std::size_t r = 0; r < 4; ++r) std::memcpy(out[i[r]].data(), &sums[r], sizeof(Row));
  }
  return out;
}

// rowsᵀ · u; four rows at once, so that a sum is read and written once for them.
ATTN_FOR_EACH_PROCESSOR Columns across(const Rows& rows, const Columns& u) {
  Columns out(rows.d);
  for (std::size_t i = 0; i < rows.n; i += 4) {
    const std::size_t count = std::min<std::size_t>(4, rows.n - i);
    Vector factors[4] = {};
    std::memcpy(factors, u[i].data(), count * sizeof(Row));
    for (std::size_t k = 0; k < rows.d; ++k) {
      Vector sum;
      std::memcpy(&sum, out[k].data(), sizeof sum);
      sum += rows[i][k] * factors[0];
      if (count > 1) sum += rows[i + 1][k] * factors[1];
      if (count > 2) sum += rows[i + 2][k] * factors[2];
      if (count > 3) sum += rows[i + 3][k] * factors[3];
      std::memcpy(out[k].data(), &sum, sizeof sum);
    }
  }
  return out;
}

// Eigenvectors of a small symmetric matrix by Jacobi's rotations; `a` is left diagonal.
Square jacobi(Square& a) {
  Square v{};
  for (std::size_t i = 0; i < kBlock; ++i) v[i][i] = 1;
  constexpr int sweeps = 30;
  bool turned = true;
  for (int sweep = 0; sweep < sweeps && turned; ++sweep) {
    turned = false;
    for (std::size_t p = 0; p < kBlock; ++p) {
      for (std::size_t q = p + 1; q < kBlock; ++q) {
        constexpr double nothing = 1e-16;
        if (std::abs(a[p][q]) <= nothing * std::sqrt(std::abs(a[p][p] * a[q][q]))) continue;
        turned = true;
        const double theta = 0.5 * std::atan2(2 * a[p][q], a[q][q] - a[p][p]), c = std::cos(theta), s = std::sin(theta);
        const auto turn = [&](double& x, double& y) {
          const double before = x;
          x = c * before - s * y, y = s * before + c * y;
        };
        for (Row& row : a) turn(row[p], row[q]);
        for (std::size_t k = 0; k < kBlock; ++k) turn(a[p][k], a[q][k]);
        for (Row& row : v) turn(row[p], row[q]);
      }
    }
  }
  return v;
}

Columns starting_block(std::size_t d) {
  Columns v(d);
  std::uint32_t state = 1;  // any fixed directions do
  for (std::size_t j = 0; j < std::min(kBlock, d); ++j) {
    for (Row& row : v) row[j] = static_cast<double>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24 - 0.5;
  }
  return v;
}

struct Eigen {
  Row values{};  // falling
  Columns vectors;
};

// The largest eigenvalues of a symmetric matrix (size, size) whose trace is `total`: image(v) is the matrix times v.
// Each iteration has the best eigenpairs within the span of v, and the last one eigenpairs to a millionth of the trace.
template <class F>
Eigen eigenpairs(std::size_t size, double total, const F& image) {
  Columns v = starting_block(size);
  for (int i = 0;; ++i) {
    orthonormalise(v);
    const Columns moved = image(v);
    Square small = products(v, moved);
    const Square rotation = jacobi(small);
    const auto larger = [&](std::size_t a, std::size_t b) { return small[a][a] > small[b][b]; };
    const std::vector<std::size_t> order = order_of(kBlock, larger);
    Square turn{};
    Eigen found;
    for (std::size_t j = 0; j < kBlock; ++j) {
      found.values[j] = small[order[j]][order[j]];
      for (std::size_t k = 0; k < kBlock; ++k) turn[k][j] = rotation[k][order[j]];
    }
    found.vectors = times(v, turn);
    v = times(moved, turn);
    Row off{};
    for (std::size_t k = 0; k < size; ++k) {
      for (std::size_t j = 0; j < kShown; ++j) off[j] += std::pow(v[k][j] - found.values[j] * found.vectors[k][j], 2);
    }
    constexpr double near = 1e-6;
    if (i == kIterations || std::sqrt(*std::max_element(off.begin(), off.end())) <= near * total) return found;
  }
}

Rows transposed(const Rows& rows) {
  Rows out{rows.d, rows.n, std::vector<double>(rows.values.size())};
  for (std::size_t i = 0; i < rows.n; ++i) {
    for (std::size_t k = 0; k < rows.d; ++k) out[k][i] = rows[i][k];
  }
  return out;
}

// rowsᵀ · rows
ATTN_FOR_EACH_PROCESSOR Rows gram(const Rows& rows) {
  Rows out{rows.d, rows.d, std::vector<double>(rows.d * rows.d)};
  for (std::size_t i = 0; i < rows.n; ++i) {
    for (std::size_t k = 0; k < rows.d; ++k) {
      for (std::size_t l = 0; l < rows.d; ++l) out[k][l] += rows[i][k] * rows[i][l];
    }
  }
  return out;
}

// Eigenpairs of rowsᵀ · rows by the way that takes the fewest operations. Of few rows those of rows · rowsᵀ have the
// same values, and rowsᵀ takes their vectors to the others.
Eigen covariance(const Rows& rows, double total) {
  constexpr std::size_t small = 320;
  const auto pairs_of = [total](const Rows& matrix) {
    return eigenpairs(matrix.n, total, [&](const Columns& v) { return along(matrix, v); });
  };
  if (rows.n < rows.d && rows.n <= small) {
    Eigen found = pairs_of(gram(transposed(rows)));
    found.vectors = across(rows, found.vectors);
    orthonormalise(found.vectors);
    return found;
  }
  if (rows.d <= small) return pairs_of(gram(rows));
  return eigenpairs(rows.d, total, [&](const Columns& v) { return across(rows, along(rows, v)); });
}

}  // namespace

Projection principal_axes(const Tensor& x) {
  if (x.size(1) <= static_cast<std::int64_t>(kShown)) return {};
  const Rows rows = centred_rows(x);
  const double total = std::inner_product(rows.values.begin(), rows.values.end(), rows.values.begin(), 0.0);
  const Eigen found = covariance(rows, total);
  Projection result{Tensor::zeros({x.size(1), static_cast<std::int64_t>(kShown)}, DType::f64), {}};
  for (std::size_t axis = 0; axis < kShown; ++axis) {
    const auto smaller = [axis](const Row& a, const Row& b) { return std::abs(a[axis]) < std::abs(b[axis]); };
    const Row& largest = *std::max_element(found.vectors.begin(), found.vectors.end(), smaller);
    const double sign = largest[axis] < 0 ? -1 : 1;
    for (std::size_t k = 0; k < rows.d; ++k) {
      result.axes.data<double>()[k * kShown + axis] = sign * found.vectors[k][axis];
    }
    result.explained.push_back(total > 0 ? std::max(0.0, found.values[axis]) / total : 0);
  }
  return result;
}

Tensor projected(const Tensor& x, const Projection& projection) {
  const std::int64_t n = x.size(0), d = x.size(1), shown = static_cast<std::int64_t>(kShown);
  Tensor out = Tensor::zeros({n, shown});
  const Tensor wide = x.to(DType::f64).contiguous();
  const double* axes = projection.axes.defined() ? projection.axes.data<double>() : nullptr;
  for (std::int64_t i = 0; i < n; ++i) {
    const double* row = wide.data<double>() + i * d;
    std::array<double, kShown> sums{};
    for (std::int64_t k = 0; k < d; ++k) {
      for (std::size_t axis = 0; axis < kShown; ++axis) {
        if (axes) sums[axis] += row[k] * axes[static_cast<std::size_t>(k) * kShown + axis];
      }
    }
    if (!axes) std::copy_n(row, std::min(d, shown), sums.begin());
    std::transform(sums.begin(), sums.end(), out.data<float>() + i * shown,
                   [](double sum) { return static_cast<float>(sum); });
  }
  return out;
}

}  // namespace attn::report_page
