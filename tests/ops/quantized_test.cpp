// Projections by a quantised matrix at each precision: beside float64's, within what the rounding of rows explains.
#include "attn/quantized.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/testing.hpp"
#include "ops/dense.hpp"

namespace attn::test {
namespace {

constexpr std::int64_t kRows = 7, kOutputs = 37, kWidth = 512;

QuantizedMatrix drawn_matrix(std::mt19937_64& random) {
  QuantizedMatrix matrix(kOutputs, kWidth, {.bits = 4, .has_least = true});
  std::uniform_int_distribution<int> code(0, 15);
  for (std::int64_t row = 0; row < kOutputs; ++row) {
    for (std::int64_t run = 0; run < kWidth / 32; ++run) {
      BlockRun from{.scale = 0.125F, .least = -1};
      for (std::uint8_t& one : from.codes) one = static_cast<std::uint8_t>(code(random));
      EXPECT_TRUE(matrix.set(row, run, from));
    }
  }
  return matrix;
}

Tensor projected(const Tensor& x, const QuantizedMatrix& weight, const Tensor& bias, Precision precision) {
  return project(x, {}, bias, {.precision = precision, .dtype = DType::f32, .blocks = &weight});
}

struct QuantizedProject : testing::Test {
  std::mt19937_64 random{11};
  const QuantizedMatrix weight = drawn_matrix(random);
  const Tensor x = normal(random, {kRows, kWidth}), bias = normal(random, {kOutputs});
};

// A number is off by half of a 127th of its block's largest at medium, by half of a 254th of that at high; adding up in
// float32 may take as much again as float32's epsilon by all magnitudes.
TEST_F(QuantizedProject, KeepsTheBitsThatItsPrecisionSays) {
  const std::pair<Precision, double> steps[] = {
      {Precision::highest, 0}, {Precision::high, 0.51 / 127 / 253}, {Precision::medium, 0.51 / 127}};
  double off_medium = 0, off_high = 0;
  for (const auto& [precision, step] : steps) {
    const Tensor y = projected(x, weight, bias, precision);
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 0; j < kOutputs; ++j) {
        const Tensor w = weight.read(j, j + 1);
        double sum = static_cast<double>(bias.data<float>()[j]), bound = 0, largest = 0;
        for (std::int64_t l = 0; l < kWidth; ++l) {
          if (l % 32 == 0) {
            largest = 0;
            for (std::int64_t of = l; of < l + 32; ++of) largest = std::max(largest, std::abs(x.at({i, of})));
          }
          const double factor = w.at({0, l});
          sum += x.at({i, l}) * factor;
          bound += std::abs(factor) * (step * largest + 0x1p-19 * std::abs(x.at({i, l})) + 0x1p-20 * largest);
        }
        const double off = std::abs(y.at({i, j}) - sum);
        ASSERT_LE(off, bound) << name(precision) << ", row " << i << ", output " << j;
        if (precision == Precision::medium) off_medium = std::max(off_medium, off);
        if (precision == Precision::high) off_high = std::max(off_high, off);
      }
    }
  }
  EXPECT_GT(off_medium, 20 * off_high) << "two rows of bytes are no better than one";
}

TEST_F(QuantizedProject, ARowHasTheSameBitsAlone) {
  for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
    const Tensor all = projected(x, weight, bias, precision);
    for (std::int64_t i = 0; i < kRows; ++i) {
      const Tensor alone = projected(x.slice(0, i, i + 1), weight, bias, precision);
      EXPECT_TRUE(identical(alone, all.slice(0, i, i + 1).contiguous()));
    }
  }
}

// A row that is not finite is computed in float32, at every precision, and the others keep their bits.
TEST_F(QuantizedProject, RowsThatAreNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Precision precision : {Precision::high, Precision::medium}) {
    const Tensor before = projected(x, weight, bias, precision), other = x.clone();
    other.data<float>()[2 * kWidth + 5] = infinity;
    other.data<float>()[4 * kWidth + 100] = nan;
    const Tensor after = projected(other, weight, bias, precision),
                 exact = projected(other, weight, bias, Precision::highest);
    for (std::int64_t i = 0; i < kRows; ++i) {
      const Tensor& wanted = i == 2 || i == 4 ? exact : before;
      EXPECT_TRUE(identical(after.slice(0, i, i + 1).contiguous(), wanted.slice(0, i, i + 1).contiguous()));
    }
  }
}

// A row's codes are what was set, of all bits, whatever its neighbours have.
TEST(QuantizedMatrix, ReadsWhatWasSet) {
  for (const BlockForm& form : {BlockForm{.bits = 4, .has_least = true}, BlockForm{.bits = 6}, BlockForm{.bits = 8}}) {
    QuantizedMatrix matrix(3, 64, form);
    const auto code = [&](std::int64_t row, std::int64_t i) { return (37 * row + 11 * i) % (1 << form.bits); };
    for (const std::int64_t row : {2, 0, 1}) {
      for (std::int64_t run = 0; run < 2; ++run) {
        BlockRun from{.scale = 2, .least = form.has_least ? 1.F : 0.F};
        for (std::int64_t i = 0; i < 32; ++i)
          from.codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code(row, 32 * run + i));
        EXPECT_TRUE(matrix.set(row, run, from));
      }
    }
    for (std::int64_t row = 0; row < 3; ++row) {
      const Tensor numbers = matrix.read(row, row + 1);
      for (std::int64_t i = 0; i < 64; ++i)
        ASSERT_EQ(numbers.at({0, i}), static_cast<double>(2 * code(row, i) + form.has_least)) << form.bits << " bits";
    }
  }
}

TEST(QuantizedMatrix, RefusesFormsThatNoKernelMultiplies) {
  for (const BlockForm& form : {BlockForm{.bits = 5}, BlockForm{.bits = 8, .nested = true}, BlockForm{.block = 16},
                                BlockForm{.bits = 4, .block = 16}, BlockForm{.bits = 6, .block = 64}})
    EXPECT_THROW(QuantizedMatrix(16, 256, form), Error) << form.bits << " bits in blocks of " << form.block;
}

TEST(QuantizedMatrix, RefusesSizesThatNoMemoryHolds) {
  for (const std::int64_t rows : {std::int64_t{-1}, std::int64_t{0}, std::numeric_limits<std::int64_t>::max()})
    expect_error(Error::Kind::shape, {"from 1 to 2^40 rows", std::to_string(rows) + " of 32"},
                 [&] { QuantizedMatrix(rows, 32, {}); });
  expect_error(Error::Kind::shape, {"from 1 to 2^40 rows"}, [] { QuantizedMatrix(1, std::int64_t{1} << 62, {}); });
}

}  // namespace
}  // namespace attn::test
