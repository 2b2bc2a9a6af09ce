#include "report/pca.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace attn::report_page {
namespace {

using Columns = std::vector<std::vector<double>>;  // a matrix, column by column

constexpr std::size_t kShown = 3, kBlock = 8;  // more columns than shown: closer eigenvalues come apart sooner
constexpr int kIterations = 60;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Gram and Schmidt, twice is enough (Giraud et al. 2005); what is no direction of its own becomes zero.
void orthonormalise(Columns& v) {
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double before = std::sqrt(dot(v[i], v[i]));
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < i; ++j) {
        const double along = dot(v[i], v[j]);
        for (std::size_t k = 0; k < v[i].size(); ++k) v[i][k] -= along * v[j][k];
      }
    }
    const double length = std::sqrt(dot(v[i], v[i]));
    constexpr double nothing = 1e-12;
    for (double& x : v[i]) x = length > nothing * before && length > 0 ? x / length : 0;
  }
}

// Rows centred on their mean, float64.
Columns centred_rows(const Tensor& x) {
  const auto n = static_cast<std::size_t>(x.size(0)), d = static_cast<std::size_t>(x.size(1));
  const Tensor wide = x.to(DType::f64).contiguous();
  Columns rows(n, std::vector<double>(d));
  std::vector<double> mean(d);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < d; ++k) {
      const double value = wide.data<double>()[i * d + k];
      rows[i][k] = std::isfinite(value) ? value : 0;
      mean[k] += rows[i][k] / static_cast<double>(n);
    }
  }
  for (auto& row : rows) std::transform(row.begin(), row.end(), mean.begin(), row.begin(), std::minus<>());
  return rows;
}

// rowsᵀ · (rows · v): the covariance times v, without making it.
std::vector<double> covariance_times(const Columns& rows, const std::vector<double>& v) {
  std::vector<double> out(v.size());
  for (const auto& row : rows) {
    const double along = dot(row, v);
    for (std::size_t k = 0; k < v.size(); ++k) out[k] += along * row[k];
  }
  return out;
}

// Eigenvectors of a small symmetric matrix by Jacobi's rotations; `a` is left diagonal.
Columns jacobi(Columns& a) {
  const std::size_t n = a.size();
  Columns v(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) v[i][i] = 1;
  constexpr int sweeps = 30;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p][q] == 0) continue;
        const double theta = 0.5 * std::atan2(2 * a[p][q], a[q][q] - a[p][p]), c = std::cos(theta), s = std::sin(theta);
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[k][p], y = a[k][q];
          a[k][p] = c * x - s * y, a[k][q] = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[p][k], y = a[q][k];
          a[p][k] = c * x - s * y, a[q][k] = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = v[p][k], y = v[q][k];
          v[p][k] = c * x - s * y, v[q][k] = s * x + c * y;
        }
      }
    }
  }
  return v;
}

struct Eigen {
  std::vector<double> values;  // falling
  Columns vectors;
};

// The best eigenpairs within the span of v.
Eigen ritz(const Columns& rows, const Columns& v) {
  const std::size_t m = v.size();
  Columns small(m, std::vector<double>(m));
  for (std::size_t i = 0; i < m; ++i) {
    const auto image = covariance_times(rows, v[i]);
    for (std::size_t j = 0; j < m; ++j) small[i][j] = dot(image, v[j]);
  }
  const Columns rotation = jacobi(small);
  std::vector<std::size_t> order(m);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return small[a][a] > small[b][b]; });
  Eigen result;
  for (const std::size_t i : order) {
    std::vector<double> vector(v[0].size());
    for (std::size_t j = 0; j < m; ++j) {
      for (std::size_t k = 0; k < vector.size(); ++k) vector[k] += rotation[i][j] * v[j][k];
    }
    result.values.push_back(small[i][i]);
    result.vectors.push_back(std::move(vector));
  }
  return result;
}

Columns starting_block(std::size_t d) {
  Columns v(std::min(kBlock, d), std::vector<double>(d));
  std::uint32_t state = 1;  // any fixed directions do
  for (auto& column : v) {
    for (double& x : column) x = static_cast<double>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24 - 0.5;
  }
  return v;
}

}  // namespace

Projection principal_axes(const Tensor& x) {
  const auto d = static_cast<std::size_t>(x.size(1));
  if (d <= kShown) return {};
  const Columns rows = centred_rows(x);
  double total = 0;
  for (const auto& row : rows) total += dot(row, row);
  Columns v = starting_block(d);
  orthonormalise(v);
  for (int i = 0; i < kIterations; ++i) {
    for (auto& column : v) column = covariance_times(rows, column);
    orthonormalise(v);
  }
  const Eigen found = ritz(rows, v);
  Projection result{Tensor::zeros({x.size(1), static_cast<std::int64_t>(kShown)}, DType::f64), {}};
  for (std::size_t axis = 0; axis < kShown; ++axis) {
    const auto& vector = found.vectors[axis];
    const auto largest =
        std::max_element(vector.begin(), vector.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    const double sign = *largest < 0 ? -1 : 1;
    for (std::size_t k = 0; k < d; ++k) result.axes.data<double>()[k * kShown + axis] = sign * vector[k];
    result.explained.push_back(total > 0 ? std::max(0.0, found.values[axis]) / total : 0);
  }
  return result;
}

Tensor projected(const Tensor& x, const Projection& projection) {
  const std::int64_t n = x.size(0), d = x.size(1);
  Tensor out = Tensor::zeros({n, static_cast<std::int64_t>(kShown)});
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(kShown); ++axis) {
      double sum = projection.axes.defined() || axis >= d ? 0 : x.at({i, axis});
      for (std::int64_t k = 0; projection.axes.defined() && k < d; ++k)
        sum += x.at({i, k}) * projection.axes.at({k, axis});
      out.set({i, axis}, sum);
    }
  }
  return out;
}

}  // namespace attn::report_page
