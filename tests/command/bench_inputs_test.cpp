// The numbers that a row of attn bench's list asks for are those that it is timed on.
#include <cmath>

#include "bench/inputs.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

struct Counts {
  std::int64_t nan = 0, positive_inf = 0, negative_inf = 0, subnormal = 0;
  double largest = 0;  // of the finite ones

  bool operator==(const Counts&) const = default;
};

// The least normal number is 2^-126 for float32 and bfloat16, and 2^-14 for float16.
Counts count(const Tensor& t) {
  const double least = t.dtype() == DType::f16 ? 0x1p-14 : 0x1p-126;
  const Tensor all = t.to(DType::f64).contiguous();
  Counts found;
  for (const double x : std::span(all.data<double>(), static_cast<std::size_t>(all.numel()))) {
    found.nan += std::isnan(x);
    found.positive_inf += x == HUGE_VAL, found.negative_inf += x == -HUGE_VAL;
    found.subnormal += x != 0 && std::fabs(x) < least;
    if (std::isfinite(x)) found.largest = std::max(found.largest, std::fabs(x));
  }
  return found;
}

class BenchNumbers : public testing::TestWithParam<DType> {
 protected:
  // Of the first call; another one for the same tensor has the same.
  Counts drawn(const std::string& numbers) {
    inputs_.use(numbers);
    const Counts found = count(inputs_.normal("q", {1024, 64}, GetParam()));
    EXPECT_EQ(count(inputs_.normal("q", {1024, 64}, GetParam())), found) << numbers;
    return found;
  }
  static constexpr double kAll = 1024 * 64, kPastTwo = 0.0455;  // a normal number's chance to be further from 0 than 2

  tool::BenchInputs inputs_;
};

TEST_P(BenchNumbers, AreWhatTheRowNames) {
  const Counts normal = drawn("normal"), one_nan = drawn("one-nan"), nan = drawn("nan"), one_inf = drawn("one-inf"),
               inf = drawn("inf"), huge = drawn("huge"), subnormal = drawn("subnormal");
  EXPECT_EQ(one_nan.nan, 1);
  EXPECT_EQ(one_inf.positive_inf, 1);
  EXPECT_NEAR(static_cast<double>(nan.nan) / kAll, kPastTwo, 0.005);
  EXPECT_NEAR(static_cast<double>(inf.positive_inf) / kAll, kPastTwo / 2, 0.004);
  EXPECT_NEAR(static_cast<double>(inf.negative_inf) / kAll, kPastTwo / 2, 0.004);
  for (const Counts& each : {normal, one_inf, inf, huge, subnormal}) EXPECT_EQ(each.nan, 0);
  for (const Counts& each : {normal, one_nan, nan, huge, subnormal}) {
    EXPECT_EQ(each.positive_inf + each.negative_inf, 0);
  }
  EXPECT_GT(huge.largest, GetParam() == DType::f16 ? 60000 : 2.5e38);
  for (const Counts& each : {normal, one_nan, one_inf}) {
    EXPECT_GT(each.largest, 3);
    EXPECT_LT(each.largest, 7);
  }
  EXPECT_GT(static_cast<double>(subnormal.subnormal) / kAll, 0.9);  // bfloat16 has zeros for the smallest
  for (const Counts& each : {normal, huge}) EXPECT_LT(static_cast<double>(each.subnormal) / kAll, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, BenchNumbers, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& dtype) { return std::string(name(dtype.param)); });

}  // namespace
}  // namespace attn::test
