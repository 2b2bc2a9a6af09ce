// Products with quantised matrices, for every instruction set: beside float64's of the numbers that the blocks stand
// for, and the same bits for a row whatever other rows there are.
#include "attn/quantized.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "kernels/quantized_targets.hpp"
#include "kernels/units.hpp"

namespace attn::kernels {
namespace {

struct BlockCase {
  const char* name;
  BlockForm form;
};

constexpr std::array<std::uint8_t, 16> kLevels{0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 255};

// One form of each layout.
const BlockCase kCases[] = {{"four", {4, 32, false, false, 127, kLevels}},
                            {"four_least", {4, 32, false, true}},
                            {"four_nested", {4, 32, true, false, 127, kLevels}},
                            {"four_nested_least", {4, 32, true, true}},
                            {"four_of_16", {4, 16, true, false, 4, kLevels}},
                            {"four_of_16_least", {4, 16, true, true}},
                            {"six", {6, 32, false, false, 16}},
                            {"six_least", {6, 32, false, true}},
                            {"six_nested", {6, 32, true, false, 32}},
                            {"six_nested_least", {6, 32, true, true}},
                            {"six_of_16", {6, 16, true, false, 32}},
                            {"six_of_16_least", {6, 16, true, true}},
                            {"eight", {8, 32, false, false, 128}},
                            {"eight_least", {8, 32, false, true}}};

// Codes of all bits that the form has; in every third row the largest alone, whose products are the largest.
QuantizedMatrix drawn(const BlockForm& form, std::int64_t rows, std::int64_t width, std::mt19937_64& random) {
  QuantizedMatrix matrix(rows, width, form);
  const int most = (1 << form.bits) - 1;
  std::uniform_int_distribution<int> code(0, most), scale(-100, 100);
  std::uniform_real_distribution<float> factor(-1, 1);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t run = 0; run < width / form.shared(); ++run) {
      BlockRun from;
      from.scale = static_cast<float>(float16(factor(random))),
      from.least = static_cast<float>(float16(factor(random)));
      for (std::int8_t& one : from.scales) one = static_cast<std::int8_t>(scale(random));
      for (std::int8_t& one : from.leasts) one = static_cast<std::int8_t>(scale(random));
      for (std::uint8_t& one : from.codes) one = static_cast<std::uint8_t>(row % 3 == 2 ? most : code(random));
      EXPECT_TRUE(matrix.set(row, run, from));
    }
  }
  return matrix;
}

struct Rows {
  std::vector<float> x, y, scales, sums;
  std::vector<std::int8_t> bytes;
  std::vector<std::int32_t> starts;
  std::int64_t width;
};

// y = x · weightᵀ + bias of the rows from `first` on, in float32 or in bytes.
void multiply(const QuantizedKernel& kernel, const QuantizedMatrix& weight, const float* bias, Rows& rows,
              std::int64_t first, std::int64_t count, bool in_bytes) {
  const BlockForm& form = weight.form();
  QuantizedProduct p{};
  p.m = count, p.n = weight.rows(), p.k = weight.width();
  p.bits = form.bits, p.block = form.block, p.nested = form.nested, p.has_least = form.has_least, p.zero = form.zero;
  std::copy(form.levels.begin(), form.levels.end(), p.levels);
  p.codes = weight.codes().data<std::uint8_t>(), p.code_stride = weight.codes().size(1);
  p.scales = weight.scales().data<std::uint8_t>(), p.scale_stride = weight.scales().size(1);
  p.task_outputs = 32, p.bias = bias;
  p.c = rows.y.data() + first * p.n, p.c_row = p.n;
  const std::int64_t blocks = p.k / p.block;
  if (in_bytes) {
    p.x = {rows.bytes.data(), rows.scales.data(), rows.starts.data(), rows.sums.data()};
    for (std::int64_t i = 0; i < count; ++i) kernel.round_row(p, rows.x.data() + (first + i) * p.k, i, p.x);
    EXPECT_GE(static_cast<std::int64_t>(rows.scales.size()), count * blocks);
  } else {
    p.a = rows.x.data() + first * p.k, p.a_row = p.k;
  }
  const Poisoned scratch(kernel.scratch);
  for (std::int64_t task = kernel.tasks(p); task-- > 0;) EXPECT_TRUE(kernel.run(p, task, scratch.data.get()));
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const QuantizedTarget& target : quantized_targets()) all.emplace_back(target.name);
  return all;
}

class Quantized : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto all = quantized_targets();
    const auto found = std::ranges::find(all, GetParam(), &QuantizedTarget::name);
    if (!found->supported) GTEST_SKIP() << "not on this processor";
    kernel_ = found->kernel;
    RecordProperty("seed", std::to_string(seed_));
  }

  Rows drawn_rows(std::int64_t count, std::int64_t width, std::int64_t outputs) {
    Rows rows{{}, {}, {}, {}, {}, {}, width};
    std::normal_distribution<float> normal;
    rows.x.resize(static_cast<std::size_t>(count * width)), rows.y.resize(static_cast<std::size_t>(count * outputs));
    for (float& x : rows.x) x = normal(random_);
    std::fill_n(rows.x.begin(), width, 3.F);  // the largest bytes
    std::fill_n(rows.x.begin() + width, std::min(width, (count - 1) * width), 0.F);
    rows.bytes.resize(rows.x.size()), rows.scales.resize(rows.x.size()), rows.sums.resize(rows.x.size());
    rows.starts.resize(rows.x.size());
    return rows;
  }

  const QuantizedKernel* kernel_ = nullptr;
  std::uint64_t seed_ = 7;
  std::mt19937_64 random_{seed_};
};

// The furthest that the result may lie from float64's: for rounded additions of so many terms, and where x was rounded
// to bytes, for half of a scale in each number.
double bound(const BlockForm& form, const float* x, const float* w, std::int64_t width, bool in_bytes) {
  double sum = 0;
  for (std::int64_t first = 0; first < width; first += form.block) {
    double most = 0;
    for (std::int64_t i = first; i < first + form.block; ++i)
      most = std::max(most, std::fabs(static_cast<double>(x[i])));
    for (std::int64_t i = first; i < first + form.block; ++i) {
      const double magnitude = std::fabs(static_cast<double>(w[i]));
      sum += magnitude * (in_bytes ? 0.502 * most / 127 : 0) + 0x1p-24 * static_cast<double>(width) * magnitude * most;
    }
    sum += in_bytes && form.has_least ? 0x1p-20 * most * form.block * 100 : 0;
  }
  return sum + 0x1p-20;
}

TEST_P(Quantized, ProductsAreThoseOfTheNumbers) {
  for (const BlockCase& each : kCases) {
    for (const bool in_bytes : {false, true}) {
      const std::int64_t n = 37, k = 512, m = 5;
      const QuantizedMatrix weight = drawn(each.form, n, k, random_);
      Rows rows = drawn_rows(m, k, n);
      std::vector<float> bias(static_cast<std::size_t>(n), 0.25F), w(static_cast<std::size_t>(k));
      multiply(*kernel_, weight, bias.data(), rows, 0, m, in_bytes);
      for (std::int64_t j = 0; j < n; ++j) {
        weight.read(j, w.data());
        for (std::int64_t i = 0; i < m; ++i) {
          const float* x = rows.x.data() + i * k;
          double sum = 0.25;
          for (std::int64_t l = 0; l < k; ++l) {
            sum += static_cast<double>(x[l]) * static_cast<double>(w[static_cast<std::size_t>(l)]);
          }
          ASSERT_NEAR(static_cast<double>(rows.y[static_cast<std::size_t>(i * n + j)]), sum,
                      bound(each.form, x, w.data(), k, in_bytes))
              << each.name << (in_bytes ? " in bytes" : "") << ", row " << i << ", output " << j;
        }
      }
    }
  }
}

TEST_P(Quantized, ARowHasTheSameBitsAmongOthers) {
  for (const BlockCase& each : kCases) {
    for (const bool in_bytes : {false, true}) {
      const std::int64_t n = 100, k = 256, m = 111;
      const QuantizedMatrix weight = drawn(each.form, n, k, random_);
      Rows rows = drawn_rows(m, k, n);
      multiply(*kernel_, weight, nullptr, rows, 0, m, in_bytes);
      const std::vector<float> together = rows.y;
      for (const auto& [first, count] : {std::pair{0, 1}, {3, 1}, {7, 2}, {20, 5}, {96, 15}, {30, 70}}) {
        multiply(*kernel_, weight, nullptr, rows, first, count, in_bytes);
        ASSERT_EQ(std::memcmp(rows.y.data() + first * n, together.data() + first * n,
                              static_cast<std::size_t>(count * n) * sizeof(float)),
                  0)
            << each.name << (in_bytes ? " in bytes" : "") << ", rows from " << first;
      }
    }
  }
}

// Processors with instructions for products of bytes and those without give the same bits.
TEST(QuantizedTargets, OfOneInstructionSetAgreeInEveryBit) {
  std::mt19937_64 random(11);
  const std::int64_t n = 70, k = 512, m = 13;
  for (const BlockCase& each : kCases) {
    const QuantizedMatrix weight = drawn(each.form, n, k, random);
    Rows rows{std::vector<float>(m * k),
              std::vector<float>(m * n),
              std::vector<float>(m * k),
              std::vector<float>(m * k),
              std::vector<std::int8_t>(m * k),
              std::vector<std::int32_t>(m * k),
              k};
    std::normal_distribution<float> normal;
    for (float& x : rows.x) x = normal(random);
    std::map<std::string_view, std::vector<float>> found;
    for (const QuantizedTarget& target : quantized_targets()) {
      if (!target.supported) continue;
      multiply(*target.kernel, weight, nullptr, rows, 0, m, true);
      const auto [first, is_first] = found.try_emplace(target.of, rows.y);
      EXPECT_TRUE(is_first || first->second == rows.y) << each.name << " of " << target.name;
    }
  }
}

// A number of x that is not finite makes its row so, and no other.
TEST_P(Quantized, RowsThatAreNotFiniteSaySo) {
  const QuantizedMatrix weight = drawn(kCases[1].form, 16, 64, random_);
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    Rows rows = drawn_rows(1, 64, 16);
    rows.x[40] = odd;
    QuantizedProduct p{};
    p.k = 64, p.block = 32;
    kernel_->round_row(p, rows.x.data(), 0,
                       {rows.bytes.data(), rows.scales.data(), rows.starts.data(), rows.sums.data()});
    EXPECT_TRUE(std::isnan(rows.scales[1]));
    EXPECT_FALSE(std::isnan(rows.scales[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Units, Quantized, testing::ValuesIn(names()), [](const auto& unit) { return unit.param; });

}  // namespace
}  // namespace attn::kernels
