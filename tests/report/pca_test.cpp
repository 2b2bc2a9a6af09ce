// The axes of points with more than three numbers.
#include "report/pca.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "core/testing.hpp"

namespace attn::test {
namespace {

// Axes are orthonormal eigenvectors of the covariance, and explain what they should.
TEST(PrincipalAxes, AreThoseOfTheCovariance) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t n = pick(rng, 2, 40), d = pick(rng, 4, 12);
    Tensor x = Tensor::empty({n, d}, DType::f64);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < d; ++k) x.set({i, k}, normal(rng) * std::pow(0.6, static_cast<double>(k)) + 3);
    }
    const auto [axes, explained] = report_page::principal_axes(x);
    std::vector<double> mean(static_cast<std::size_t>(d));
    for (std::int64_t k = 0; k < d; ++k) {
      for (std::int64_t i = 0; i < n; ++i) mean[static_cast<std::size_t>(k)] += x.at({i, k}) / static_cast<double>(n);
    }
    double total = 0;
    const auto centred = [&](std::int64_t i, std::int64_t k) {
      return x.at({i, k}) - mean[static_cast<std::size_t>(k)];
    };
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < d; ++k) total += centred(i, k) * centred(i, k);
    }
    for (std::int64_t a = 0; a < std::min<std::int64_t>(3, n - 1); ++a) {
      const double eigenvalue = explained[static_cast<std::size_t>(a)] * total;
      double length = 0;
      for (std::int64_t k = 0; k < d; ++k) {
        double image = 0;  // row k of the covariance times the axis
        for (std::int64_t i = 0; i < n; ++i) {
          double along = 0;
          for (std::int64_t m = 0; m < d; ++m) along += centred(i, m) * axes.at({m, a});
          image += centred(i, k) * along;
        }
        EXPECT_NEAR(image, eigenvalue * axes.at({k, a}), 1e-4 * total) << "axis " << a;
        length += axes.at({k, a}) * axes.at({k, a});
      }
      EXPECT_NEAR(length, 1, 1e-9);
      if (a > 0) {
        EXPECT_LE(explained[static_cast<std::size_t>(a)], explained[static_cast<std::size_t>(a - 1)]);
      }
    }
  });
}

// However much smaller a direction is than the one before it: an axis of length 1, or none, at right angles to the
// others.
TEST(PrincipalAxes, AreAtRightAngles) {
  for_seeds(60, [](std::mt19937& rng) {
    const std::int64_t n = pick(rng, 2, 40), d = chance(rng, 0.2) ? 400 : pick(rng, 4, 12), rank = pick(rng, 1, 4);
    const double falls = std::pow(10, -static_cast<double>(pick(rng, 0, 9)));
    const Tensor x = Tensor::zeros({n, d}, DType::f64);
    for (std::int64_t r = 0; r < rank; ++r) {
      const Tensor along = test::normal(rng, {n, 1}), direction = test::normal(rng, {1, d});
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        x.data<double>()[i] +=
            along.at({i / d, 0}) * direction.at({0, i % d}) * std::pow(falls, static_cast<double>(r));
      }
    }
    const Tensor axes = report_page::principal_axes(x).axes;
    for (std::int64_t a = 0; a < 3; ++a) {
      for (std::int64_t b = 0; b <= a; ++b) {
        double product = 0;
        for (std::int64_t k = 0; k < d; ++k) product += axes.at({k, a}) * axes.at({k, b});
        if (a == b && product == 0) continue;
        EXPECT_NEAR(product, a == b ? 1 : 0, 1e-12) << "axes " << a << " and " << b << ", falling by " << falls;
      }
    }
  });
}

}  // namespace
}  // namespace attn::test
