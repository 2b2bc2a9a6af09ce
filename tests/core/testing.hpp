// Helpers of the numeric parts' tests: random tensors, comparisons, expected errors, finite differences.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/tensor.hpp"

namespace attn::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Tells whether long tests do less: under the sanitizers, which make them ten times slower and look at accesses rather
// than numbers, and under an emulator. `make nightly` sets ATTN_NIGHTLY, and they do all.
inline bool shortened() {
#if defined(ATTN_SANITIZED) || defined(__SANITIZE_THREAD__) || defined(ATTN_EMULATED)
  static const bool nightly = std::getenv("ATTN_NIGHTLY") != nullptr;
  return !nightly;
#else
  return false;
#endif
}

// Returns how many of `count` seeds are run. An emulator computes the oracles' long double in software.
inline unsigned seeds(unsigned count) {
#if defined(ATTN_EMULATED)
  constexpr unsigned share = 6;
#else
  constexpr unsigned share = 3;
#endif
  return shortened() ? (count + share - 1) / share : count;
}

// Runs body(rng) for seeds(count); a failure names its seed.
template <class Body>
void for_seeds(unsigned count, Body&& body) {
  for (unsigned seed = 1; seed <= seeds(count); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    body(rng);
    if (testing::Test::HasFatalFailure()) return;
  }
}

template <class Random>
std::int64_t pick(Random& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}

template <class Random>
bool chance(Random& rng, double p) {
  return std::bernoulli_distribution(p)(rng);
}

// Every element in row-major order, as double.
inline std::vector<double> values(const Tensor& t) {
  const Tensor flat = t.to(DType::f64).contiguous();
  return {flat.data<double>(), flat.data<double>() + flat.numel()};
}

inline Tensor tensor(const std::vector<double>& all, const Shape& shape, DType dtype = DType::f64) {
  return Tensor::from(std::span<const double>(all), shape).to(dtype);
}

inline Tensor integers(const std::vector<std::int64_t>& all, const Shape& shape) {
  return Tensor::from(std::span<const std::int64_t>(all), shape);
}
inline Tensor integers(const std::vector<std::int64_t>& all) { return integers(all, {std::ssize(all)}); }

inline Tensor uniform(std::mt19937& rng, const Shape& shape, DType dtype = DType::f64, double low = -1,
                      double high = 1) {
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> all(static_cast<std::size_t>(shape.numel()));
  for (double& x : all) x = draw(rng);
  return tensor(all, shape, dtype);
}

// Float32, normally distributed.
template <class Random>
Tensor normal(Random& rng, const Shape& shape, float size = 1) {
  std::normal_distribution<float> draw;
  std::vector<float> all(static_cast<std::size_t>(shape.numel()));
  for (float& x : all) x = size * draw(rng);
  return Tensor::from(std::span<const float>(all), shape);
}

template <class Random>
Tensor booleans(Random& rng, const Shape& shape, double p_true) {
  std::vector<double> all(static_cast<std::size_t>(shape.numel()));
  for (double& x : all) x = chance(rng, p_true) ? 1 : 0;
  return tensor(all, shape, DType::boolean);
}

// The same elements behind other strides: every dimension padded, some reversed, two swapped in memory.
inline Tensor scattered(std::mt19937& rng, const Tensor& t) {
  Shape padded = t.shape();
  for (auto& size : padded) size = size * 2 + 1;
  const std::int64_t a = pick(rng, 0, static_cast<std::int64_t>(t.rank()) - 1);
  const std::int64_t b = pick(rng, 0, static_cast<std::int64_t>(t.rank()) - 1);
  std::swap(padded[static_cast<std::size_t>(a)], padded[static_cast<std::size_t>(b)]);
  const Tensor memory = Tensor::full(padded, t.dtype() == DType::boolean ? 1 : 1e4, t.dtype()).transpose(a, b);
  auto* first = static_cast<std::byte*>(memory.raw());
  Shape strides = memory.strides();
  for (std::size_t i = 0; i < strides.size(); ++i) {
    std::int64_t start = 1;
    if (chance(rng, 0.3)) {
      start = 2 * t.shape()[i];
      first += start * strides[i] * static_cast<std::int64_t>(size_of(t.dtype()));
      strides[i] *= -2;
    } else {
      first += start * strides[i] * static_cast<std::int64_t>(size_of(t.dtype()));
      strides[i] *= 2;
    }
  }
  const Tensor view = Tensor::from_blob(first, t.shape(), strides, t.dtype(), memory.storage());
  view.copy_from(t);
  return view;
}

// |found - expected| <= tolerance · largest |expected|, or of `terms`, the size of what cancels, where sums may be 0;
// infinities and NaN must be the same.
inline void expect_close(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what,
                         double terms = 0) {
  ASSERT_EQ(found.shape().str(), expected.shape().str()) << what;
  const auto a = values(found), b = values(expected);
  double largest = terms;
  for (const double x : b) largest = std::isfinite(x) ? std::fmax(largest, std::fabs(x)) : largest;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    ASSERT_TRUE(same || std::fabs(a[i] - b[i]) <= tolerance * largest)
        << what << ", element " << i << ": found " << a[i] << ", expected " << b[i];
  }
}

inline void expect_finite(const Tensor& t, const std::string& what) {
  for (const double x : values(t)) ASSERT_TRUE(std::isfinite(x)) << what << " holds " << x;
}

// Bit for bit, dtype and shape included.
inline bool identical(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

// The call throws Error of `kind`, its text holding every part.
inline void expect_error(Error::Kind kind, const std::vector<std::string>& parts, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr("expected "));
    for (const auto& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
    return;
  }
  ADD_FAILURE() << "no error; expected one with: " << (parts.empty() ? "" : parts.front());
}

// Σ z · g, in double.
inline double dot(const Tensor& z, const Tensor& g) {
  const auto a = values(z), b = values(g);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `gradient` against central differences of loss() in every element of x, which loss() must read.
inline void expect_gradient(const Tensor& gradient, const Tensor& x, const std::function<double()>& loss,
                            double step = 1e-5, double tolerance = 1e-8, const std::string& what = "gradient") {
  ASSERT_TRUE(gradient.defined()) << what;
  ASSERT_EQ(gradient.shape().str(), x.shape().str()) << what;
  ASSERT_TRUE(x.is_contiguous());
  Tensor flat = x.view({-1});
  std::vector<double> differences;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const double kept = flat.at({i});
    flat.set({i}, kept + step);
    const double up = flat.at({i}), above = loss();
    flat.set({i}, kept - step);
    const double down = flat.at({i}), below = loss();
    flat.set({i}, kept);
    differences.push_back((above - below) / (up - down));
  }
  expect_close(gradient, tensor(differences, x.shape()), tolerance, what, 1);
}

}  // namespace attn::test
