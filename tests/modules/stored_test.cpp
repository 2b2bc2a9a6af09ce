// Matrices in 8 bits: how they are rounded, and products with them, beside plain loops in float64.
#include "ops/stored.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "attn/error.hpp"
#include "core/seed.hpp"
#include "core/testing.hpp"
#include "ops/dense.hpp"

namespace attn {
namespace {

using test::normal;

Parameter in_bytes(const Tensor& value) {
  Parameter matrix{"w", value, {}};
  Parameter* all[] = {&matrix};
  store_matrices(all, DType::i8);
  return matrix;
}

Error::Kind kind_of(const Tensor& value, DType dtype) {
  Parameter matrix{"w", value, {}};
  Parameter* all[] = {&matrix};
  try {
    store_matrices(all, dtype);
  } catch (const Error& error) {
    EXPECT_TRUE(matrix.value.dtype() == DType::f32 && !matrix.scales.defined()) << "changed";
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return Error::Kind::data;
}

TEST(Stored, BytesAreOffByHalfAScaleAtMost) {
  const unsigned seed = test::drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const float size : {1.F, 1e-30F, 1e36F}) {
    const Tensor value = normal(random, {7, 45}, size);
    const Parameter matrix = in_bytes(value);
    ASSERT_TRUE(matrix.value.dtype() == DType::i8 && matrix.value.shape() == value.shape());
    const Tensor rows = rows_of(matrix, 0, 7);
    for (std::int64_t i = 0; i < 7; ++i) {
      const double scale = matrix.scales.at({i});
      double most = 0, largest = 0;
      for (std::int64_t j = 0; j < 45; ++j) {
        most = std::max(most, std::fabs(value.at({i, j})));
        largest = std::max(largest, std::fabs(matrix.value.at({i, j})));
        EXPECT_LE(std::fabs(rows.at({i, j}) - value.at({i, j})), scale * (0.5 + 1e-4)) << i << " " << j;
      }
      EXPECT_EQ(largest, 127);
      EXPECT_NEAR(scale, most / 127, most * 1e-7);
    }
  }
}

TEST(Stored, RowsOfZerosStayZeros) {
  Tensor value = Tensor::zeros({2, 5});
  value.set({1, 3}, std::numeric_limits<float>::denorm_min());  // no scale is as small
  const Parameter matrix = in_bytes(value);
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) EXPECT_EQ(rows_of(matrix, 0, 2).at({i, j}), 0);
  }
}

// No scale is subnormal, for that would be rounded too far.
TEST(Stored, SubnormalRowsAreOffByHalfAScaleAtMost) {
  for (int power = -149; power < -110; ++power) {
    Tensor value = Tensor::full({1, 3}, std::ldexp(1.0, power));
    value.set({0, 1}, -1.7 * std::ldexp(1.0, power));
    const Parameter matrix = in_bytes(value);
    const double scale = matrix.scales.at({0});
    for (std::int64_t j = 0; j < 3; ++j) {
      const double found = matrix.value.at({0, j}) * scale;
      EXPECT_LE(std::fabs(found - value.at({0, j})), scale * (0.5 + 1e-4)) << power << " " << j;
    }
  }
}

TEST(Stored, RefusesWhatBytesCannotHold) {
  for (const float special : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Tensor value = Tensor::full({3, 4}, 1);
    value.set({2, 1}, special);
    EXPECT_EQ(kind_of(value, DType::i8), Error::Kind::argument);
  }
  EXPECT_EQ(kind_of(Tensor::full({3, 4}, 1), DType::f16), Error::Kind::dtype);
  Parameter matrix = in_bytes(Tensor::full({3, 4}, 1));
  Parameter* all[] = {&matrix};
  EXPECT_THROW(store_matrices(all, DType::f32), Error) << "its scales would be lost";
}

TEST(Stored, ProductsAreThoseOfTheRoundedNumbers) {
  const unsigned seed = test::drawn_seed();
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int round = 0; round < 30; ++round) {
    const std::int64_t m = draw(round % 2 == 0 ? 8 : 60), n = draw(200), k = draw(round % 3 == 0 ? 700 : 90);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << m << " " << n << " " << k);
    const Tensor x = normal(random, {m, k}), bias = round % 3 == 1 ? Tensor{} : normal(random, {n});
    const Parameter matrix = in_bytes(normal(random, {n, k}));
    const Tensor y = project(x, matrix.value, bias, {.scales = matrix.scales});
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = bias.defined() ? bias.at({j}) : 0, size = std::fabs(sum);
        for (std::int64_t c = 0; c < k; ++c) {
          const double term = x.at({i, c}) * matrix.value.at({j, c}) * matrix.scales.at({j});
          sum += term, size += std::fabs(term);
        }
        EXPECT_NEAR(y.at({i, j}), sum, size * 0x1p-24 * (2 + std::sqrt(static_cast<double>(k))));
      }
    }
    // A row alone has the bits that it has among others.
    const std::int64_t i = draw(m) - 1;
    const Tensor alone = project(x.slice(0, i, i + 1), matrix.value, bias, {.scales = matrix.scales});
    EXPECT_EQ(std::memcmp(alone.raw(), y.data<float>() + i * n, static_cast<std::size_t>(n) * 4), 0);
  }
}

TEST(Stored, SumsPastTheRangeEndAtItsLargest) {
  const Parameter matrix = in_bytes(Tensor::full({3, 40}, 0.5));
  for (const std::int64_t rows : {1, 30}) {
    const Tensor most = project(Tensor::full({rows, 40}, 3e38), matrix.value, {}, {.scales = matrix.scales});
    EXPECT_EQ(most.at({rows - 1, 2}), std::numeric_limits<float>::max());
    // 40 · 1e37 · 127 has left it before the scale brings it back.
    const Tensor fits = project(Tensor::full({rows, 40}, 1e37), matrix.value, {}, {.scales = matrix.scales});
    EXPECT_NEAR(fits.at({rows - 1, 2}), 2e38, 2e33);
  }
}

// Rows that overflow, or hold NaN, do not change the bits of those beside them.
TEST(Stored, ARowIsWhatItIsBesideHugeOnes) {
  std::mt19937 random(7);
  const Parameter matrix = in_bytes(normal(random, {30, 90}));
  for (const std::int64_t m : {4, 40}) {
    const Tensor calm = normal(random, {m, 90});
    const Tensor wanted = project(calm, matrix.value, {}, {.scales = matrix.scales});
    Tensor wild = calm.clone();
    wild.set({1, 3}, 3e38), wild.set({2, 5}, std::nan(""));
    const Tensor found = project(wild, matrix.value, {}, {.scales = matrix.scales});
    for (const std::int64_t i : {std::int64_t{0}, m - 1}) {
      EXPECT_EQ(std::memcmp(found.data<float>() + i * 30, wanted.data<float>() + i * 30, 30 * sizeof(float)), 0) << i;
    }
    for (std::int64_t j = 0; j < 30; ++j) {
      EXPECT_TRUE(std::isfinite(found.at({1, j}))) << j;
      EXPECT_TRUE(std::isnan(found.at({2, j}))) << j;
    }
  }
}

TEST(Stored, TakesNoRowsAndOtherDtypes) {
  const Parameter matrix = in_bytes(Tensor::full({3, 4}, 0.5));
  EXPECT_EQ(project(Tensor::empty({0, 4}), matrix.value, {}, {.scales = matrix.scales}).shape(), (Shape{0, 3}));
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    const Tensor y = project(Tensor::full({2, 4}, 1, dtype), matrix.value, {}, {.scales = matrix.scales});
    ASSERT_EQ(y.dtype(), dtype);
    EXPECT_NEAR(y.at({1, 2}), 2, 1e-3) << name(dtype);
  }
  EXPECT_THROW(project(Tensor::full({2, 5}, 1), matrix.value, {}, {.scales = matrix.scales}), Error) << "width 5";
}

TEST(Stored, BytesHaveNoGradient) {
  const Parameter matrix = in_bytes(Tensor::full({3, 4}, 1));
  EXPECT_THROW(project_backward(Tensor::full({2, 3}, 1), Tensor::full({2, 4}, 1), matrix.value, false), Error);
  EXPECT_THROW(project(Tensor::full({2, 4}, 1), matrix.value, {}), Error) << "without scales";
}

}  // namespace
}  // namespace attn
