// Tests what the page reads of long inputs. Plain loops decode it here, as encode.hpp describes it.
#include "report/html/encode.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "attn/report.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
std::vector<T> decoded(const nlohmann::json& text) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0, count = 0;
  for (const char c : text.get<std::string>()) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(alphabet.find(c));
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 255);
  }
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

Tensor random(const Shape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = uniform(rng);
  return x;
}

TEST(Encode, EightBitsOfARowAreWithinHalfAStep) {
  Tensor x = random({4, 9}, 1);
  for (int k = 0; k < 9; ++k) {
    x.data<float>()[9 + k] = -3;                        // one number alone
    x.data<float>()[18 + k] = k == 4 ? 1e30F : -1e30F;  // far apart
  }
  report_page::Json json;
  report_page::Comparison kept;
  report_page::quantised(json, x, kept);
  EXPECT_EQ(kept.count, x.numel());
  EXPECT_LE(kept.share, 1);
  const auto found = nlohmann::json::parse(json.str());
  EXPECT_EQ(found.at("shape"), nlohmann::json({4, 9}));
  const auto bytes = decoded<std::uint8_t>(found.at("u8"));
  const auto ranges = decoded<float>(found.at("ranges"));
  ASSERT_EQ(bytes.size(), 36u);
  ASSERT_EQ(ranges.size(), 8u);
  for (std::size_t i = 0; i < 36; ++i) {
    const double low = ranges[i / 9 * 2], high = ranges[i / 9 * 2 + 1];
    EXPECT_NEAR(low + (high - low) * bytes[i] / 255, x.data<float>()[i], (high - low) / 509) << i;
  }
}

TEST(Encode, WhatIsNoNumberBecomesTheNearestEnd) {
  report_page::Json json;
  report_page::Comparison kept;
  report_page::quantised(json, Tensor::of({{2, kInf, -kInf, NAN, 3}, {NAN, NAN, kInf, kInf, NAN}}), kept);
  EXPECT_EQ(kept.count, 2);
  const auto found = nlohmann::json::parse(json.str());
  EXPECT_EQ(decoded<std::uint8_t>(found.at("u8")), (std::vector<std::uint8_t>{0, 255, 0, 0, 255, 0, 0, 0, 0, 0}));
  EXPECT_EQ(decoded<float>(found.at("ranges")), (std::vector<float>{2, 3, 0, 0}));
}

// The cell of factor × factor weights of head h at (row, column).
std::uint8_t cell_of(const Tensor& weights, const Tensor& keep, std::int64_t factor, std::int64_t h, std::int64_t row,
                     std::int64_t column, float most) {
  const std::int64_t queries = weights.size(1), keys = weights.size(2);
  float largest = -kInf;
  bool kept = false;
  for (std::int64_t i = row * factor; i < std::min((row + 1) * factor, queries); ++i) {
    for (std::int64_t j = column * factor; j < std::min((column + 1) * factor, keys); ++j) {
      const std::int64_t at = (h * queries + i) * keys + j;
      const float w = weights.data<float>()[at];
      kept = kept || !keep.defined() || keep.data<bool>()[at];
      if (std::isnan(w)) return 255;
      largest = std::max(largest, w);
    }
  }
  if (!kept && largest == 0) return 252;
  if (std::isinf(largest)) return largest < 0 ? 253 : 254;
  return static_cast<std::uint8_t>(std::lround(largest > 0 ? 251 * std::sqrt(largest / most) : 0));
}

void expect_pooled(const Tensor& weights, const Tensor& keep, const report_page::Plan& plan, std::int64_t factor) {
  report_page::Json json;
  report_page::Comparison kept;
  report_page::pooled(json, weights, keep, plan, kept);
  EXPECT_LE(kept.share, 1);
  EXPECT_EQ(kept.count > 0, factor == 1);
  const auto found = nlohmann::json::parse(json.str());
  const std::int64_t heads = weights.size(0), queries = weights.size(1), keys = weights.size(2);
  const std::int64_t rows = (queries + factor - 1) / factor, columns = (keys + factor - 1) / factor;
  EXPECT_EQ(found.at("shape"), nlohmann::json({heads, queries, keys}));
  EXPECT_EQ(found.at("pool"), factor);
  EXPECT_EQ(found.at("top"), plan.top);
  const auto cells = decoded<std::uint8_t>(found.at("u8"));
  const auto most = decoded<float>(found.at("most"));
  const auto index = decoded<std::uint16_t>(found.at("topIndex"));
  const auto value = decoded<float>(found.at("topValue"));
  ASSERT_EQ(std::ssize(cells), heads * rows * columns);
  ASSERT_EQ(std::ssize(most), heads * rows);
  ASSERT_EQ(std::ssize(index), heads * queries * plan.top);
  ASSERT_EQ(std::ssize(value), heads * queries * plan.top);
  const float* w = weights.data<float>();
  for (std::int64_t line = 0; line < heads * rows; ++line) {
    const std::int64_t h = line / rows, r = line % rows, end = std::min((r + 1) * factor, queries);
    float largest = 0;
    for (std::int64_t i = (h * queries + r * factor) * keys; i < (h * queries + end) * keys; ++i) {
      if (std::isfinite(w[i])) largest = std::max(largest, w[i]);
    }
    EXPECT_EQ(most[static_cast<std::size_t>(line)], largest);
    for (std::int64_t c = 0; c < columns; ++c) {
      EXPECT_EQ(cells[static_cast<std::size_t>(line * columns + c)], cell_of(weights, keep, factor, h, r, c, largest))
          << "head " << h << ", cell " << r << ", " << c;
    }
  }
  for (std::int64_t row = 0; row < heads * queries; ++row) {
    std::vector<std::pair<float, std::int64_t>> order;  // the largest first, of equal ones the first key
    for (std::int64_t j = 0; j < keys; ++j) {
      if (w[row * keys + j] > 0) order.emplace_back(-w[row * keys + j], j);
    }
    std::sort(order.begin(), order.end());
    for (std::int64_t k = 0; k < plan.top; ++k) {
      const auto at = static_cast<std::size_t>(row * plan.top + k);
      const bool there = k < std::ssize(order);
      EXPECT_EQ(index[at], there ? order[static_cast<std::size_t>(k)].second : 65535) << "row " << row << ", " << k;
      EXPECT_EQ(value[at], there ? -order[static_cast<std::size_t>(k)].first : 0) << "row " << row << ", " << k;
    }
  }
}

TEST(Encode, AMapHasTheLargestOfEachCellAndEachRowsTop) {
  const Tensor weights = random({2, 5, 7}, 2);
  expect_pooled(weights, {}, {.exact = false, .cells = 3, .top = 3}, 3);
  expect_pooled(weights, {}, {.exact = false, .cells = 7, .top = 4}, 1);
  expect_pooled(random({1, 7, 4}, 3), {}, {.exact = false, .cells = 4, .top = 16}, 2);  // more than there are keys
}

TEST(Encode, AMapTellsMaskedCellsAndWhatIsNoNumber) {
  Tensor weights = random({2, 6, 6}, 4), keep = Tensor::full({2, 6, 6}, 1, DType::boolean);
  float* w = weights.data<float>();
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      if (j > i) w[i * 6 + j] = 0, keep.data<bool>()[i * 6 + j] = false;
      if (i > 3) w[36 + i * 6 + j] = -kInf;
    }
  }
  w[2] = 0.25F;  // a weight that a mask should have hidden
  w[1] = w[0];   // of equal ones the first comes first
  w[36] = NAN, w[36 + 4] = kInf;
  expect_pooled(weights, keep, {.exact = false, .cells = 3, .top = 5}, 2);
}

// Runs of keys that hold none of a row's largest weights are passed over.
TEST(Encode, RowsOfManyKeysHaveTheirTop) {
  constexpr std::int64_t keys = 300;
  const Tensor weights = random({2, 5, keys}, 5);
  float* w = weights.data<float>();
  w[7] = w[70] = w[199] = w[280] = 3;  // of equal ones the first comes first
  w[keys + 299] = 2;
  std::fill_n(w + 2 * keys + 150, 150, 0.F);
  std::fill_n(w + 3 * keys + 1, keys - 1, 0.F);
  w[4 * keys + 130] = kInf, w[4 * keys] = NAN;
  expect_pooled(weights, {}, {.exact = false, .cells = 100, .top = 4}, 3);
  expect_pooled(weights, {}, {.exact = false, .cells = 300, .top = 16}, 1);
}

// docs/report.md says what a page holds; whatever heads and layers there are, it holds as much as fits into a few MB.
TEST(Encode, APlanTakesAsMuchAsAPageMayHold) {
  constexpr std::int64_t mega = 1 << 20, width = 64;
  for (const std::int64_t layers : {1, 2, 12, 48}) {
    for (const std::int64_t heads : {1, 12, 64, 1000}) {
      for (const std::int64_t tokens : {16, 128, 129, 1024}) {
        SCOPED_TRACE(testing::Message() << layers << " layers, " << heads << " heads, " << tokens << " tokens");
        const Tensor vector = Tensor::zeros({1}).expand({heads, tokens, width});
        const Tensor pairs = Tensor::zeros({1}).expand({heads, tokens, tokens});
        report_page::Block block;
        block.steps = {{"queries", vector}, {"keys", vector},   {"values", vector},
                       {"scores", pairs},   {"weights", pairs}, {"context", vector}};
        const report_page::Plan plan = report_page::plan_for(block, layers);
        const std::int64_t all = layers * heads, vectors = 4 * all * tokens * width, scores = 2 * all * tokens * tokens;
        EXPECT_EQ(plan.exact, tokens <= 128 && 4 * (vectors + scores) <= (layers > 1 ? 9 : 32) * mega);
        EXPECT_EQ(plan.packed, layers > 1 && 4 * (vectors + scores) > mega);
        EXPECT_EQ(plan.vectors, vectors <= 4 * mega);
        EXPECT_TRUE(plan.cells == 32 || all * plan.cells * plan.cells <= 4 * mega) << plan.cells;
        EXPECT_TRUE(plan.cells == 512 || all * (plan.cells + 1) * (plan.cells + 1) > 4 * mega) << plan.cells;
        EXPECT_TRUE(plan.top == 4 || all * tokens * plan.top * 6 <= 2 * mega) << plan.top;
        EXPECT_TRUE(plan.top == 16 || all * tokens * (plan.top + 1) * 6 > 2 * mega) << plan.top;
      }
    }
  }
}

TEST(Encode, LongInputsAreMaps) {
  for (const std::int64_t tokens : {128, 129}) {
    Trace steps;
    steps.record("weights", Tensor::full({1, tokens, tokens}, 1.0 / static_cast<double>(tokens)));
    const std::string page = report(steps);
    EXPECT_EQ(page.find("\"f32\":\"") != std::string::npos, tokens == 128);
    EXPECT_EQ(page.find("\"topIndex\":\"") != std::string::npos, tokens == 129);
  }
}

}  // namespace
}  // namespace attn::test
