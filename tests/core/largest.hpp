// Comparisons beside the largest number, where rounding of sums is a share of that.
#pragma once

#include "core/kept.hpp"
#include "core/testing.hpp"

namespace attn::test {

inline double largest(const Tensor& t) {
  double most = 0;
  for (const double x : values(t)) most = std::fmax(most, std::fabs(x));
  return most;
}

// The largest |a - b|; infinite where the shapes differ, and NaN where one is.
inline double difference(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return kInf;
  const auto x = values(a), y = values(b);
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(std::fabs(x[i] - y[i]) <= most)) most = std::fabs(x[i] - y[i]);
    if (std::isnan(most)) break;
  }
  return most;
}

// |found - expected| <= tolerance · the largest |expected|
inline void expect_of_largest(const Tensor& all, const Tensor& expected, double tolerance, const std::string& what) {
  const Tensor found = kept(all, expected);
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.shape().str(), expected.shape().str()) << what;
  const auto a = values(found), b = values(expected);
  const double allowed = tolerance * largest(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::fabs(a[i] - b[i]), allowed) << what << ", element " << i << ": found " << a[i];
  }
}

}  // namespace attn::test
