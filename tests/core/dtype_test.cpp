// Every bit pattern of the 16-bit floats, against conversions computed with ldexp and nearbyint.
#include <bit>
#include <cfloat>

#include "core/testing.hpp"

namespace attn::test {
namespace {

// The value of a 16-bit float with the given numbers of exponent and mantissa bits.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int sign = bits >> 15, exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? kInf : kNan;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }
  return sign != 0 ? -value : value;
}

// The nearest value of that format, ties to even.
double nearest(double value, int exponent_bits, int mantissa_bits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(value), 1 - bias) - mantissa_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  const double most = std::ldexp(2 - std::ldexp(1, -mantissa_bits), bias);
  return std::fabs(rounded) > most ? std::copysign(kInf, value) : rounded;
}

template <class Half>
void every_pattern(int exponent_bits, int mantissa_bits) {
  for (int i = 0; i < 65536; ++i) {
    Half half;
    half.bits = static_cast<std::uint16_t>(i);
    const double expected = value_of(half.bits, exponent_bits, mantissa_bits);
    const auto as_float = static_cast<float>(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(as_float)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(Half(as_float)))) << i;
      ASSERT_EQ(std::signbit(as_float), i >> 15 != 0) << i;
    } else {
      ASSERT_EQ(static_cast<double>(as_float), expected) << i;
      ASSERT_EQ(std::signbit(as_float), i >> 15 != 0) << i;
      ASSERT_EQ(Half(as_float).bits, half.bits) << i;
    }
  }
}

// Floats around every boundary between two neighbours: the tie itself, and one float to either side.
template <class Half>
void every_boundary(int exponent_bits, int mantissa_bits) {
  const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  for (int i = 0; i < infinity; ++i) {
    const double low = value_of(static_cast<std::uint16_t>(i), exponent_bits, mantissa_bits);
    const double high = i + 1 == infinity ? std::ldexp(1, 1 << (exponent_bits - 1))
                                          : value_of(static_cast<std::uint16_t>(i + 1), exponent_bits, mantissa_bits);
    const auto tie = static_cast<float>((low + high) / 2);
    for (const float x : {std::nextafter(tie, -INFINITY), tie, std::nextafter(tie, INFINITY)}) {
      for (const float value : {x, -x}) {
        const auto found = static_cast<double>(static_cast<float>(Half(value)));
        ASSERT_EQ(found, nearest(value, exponent_bits, mantissa_bits)) << std::hexfloat << value;
      }
    }
  }
}

TEST(Float16, EveryPatternIsReadAndWrittenBack) { every_pattern<float16>(5, 10); }
TEST(Float16, RoundsToNearestEven) { every_boundary<float16>(5, 10); }
TEST(Bfloat16, EveryPatternIsReadAndWrittenBack) { every_pattern<bfloat16>(8, 7); }
TEST(Bfloat16, RoundsToNearestEven) { every_boundary<bfloat16>(8, 7); }

TEST(Halves, NanWithoutUpperMantissaBitsStaysNan) {
  const auto nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(float16(nan))));
}

TEST(DType, NamesSizesAndKinds) {
  const std::vector<std::tuple<DType, const char*, const char*, std::size_t, bool>> all{
      {DType::f64, "float64", "f64", 8, true},   {DType::f32, "float32", "f32", 4, true},
      {DType::f16, "float16", "f16", 2, true},   {DType::bf16, "bfloat16", "bf16", 2, true},
      {DType::i64, "int64", "i64", 8, false},    {DType::i32, "int32", "i32", 4, false},
      {DType::i8, "int8", "i8", 1, false},       {DType::u8, "uint8", "u8", 1, false},
      {DType::boolean, "bool", "bool", 1, false}};
  for (const auto& [dtype, text, short_text, bytes, floating] : all) {
    EXPECT_EQ(name(dtype), text);
    EXPECT_EQ(dtype_named(text), dtype);
    EXPECT_EQ(dtype_named(short_text), dtype);
    EXPECT_EQ(size_of(dtype), bytes);
    EXPECT_EQ(is_floating(dtype), floating);
  }
}

TEST(DType, OtherNamesAreNone) {
  for (const char* text : {"", "float", "Float32", "f", "f8", "int16", "boolean", "bf16 "}) {
    EXPECT_EQ(dtype_named(text), std::nullopt) << text;
  }
}

// The limit stays as it is in its dtype, and the next number above it does not.
TEST(DType, LargestNumbers) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const double most = largest(dtype), above = most * (1 + 0x1p-7);
    EXPECT_EQ(values(tensor({most, above}, {2}, DType::f64).to(dtype)), (std::vector<double>{most, kInf}))
        << name(dtype);
  }
  EXPECT_EQ(largest(DType::f64), DBL_MAX);
  for (const DType dtype : {DType::i32, DType::i8, DType::u8, DType::boolean}) {
    EXPECT_EQ(values(tensor({1e30}, {1}, DType::f64).to(dtype)), std::vector<double>{largest(dtype)}) << name(dtype);
  }
  EXPECT_EQ(largest(DType::i64), 0x1p63);
}

// ---- conversions of tensors -------------------------------------------------------------

TEST(To, EveryDTypeToEveryOther) {
  const std::vector<DType> all{DType::f64, DType::f32, DType::f16, DType::bf16,   DType::i64,
                               DType::i32, DType::i8,  DType::u8,  DType::boolean};
  for (const DType from : all) {
    for (const DType to : all) {
      const Tensor source = tensor({0, 1, 5, 100}, {4}, from), result = source.to(to);
      EXPECT_EQ(result.dtype(), to);
      const bool one = from == DType::boolean || to == DType::boolean;
      EXPECT_EQ(values(result), one ? (std::vector<double>{0, 1, 1, 1}) : (std::vector<double>{0, 1, 5, 100}))
          << name(from) << " to " << name(to);
    }
  }
}

TEST(To, IntegersTruncateSaturateAndTakeNanAsZero) {
  const Tensor x = tensor({-1.9, 1.9, 1e30, -1e30, kInf, -kInf, kNan}, {7});
  EXPECT_EQ(values(x.to(DType::i8)), (std::vector<double>{-1, 1, 127, -128, 127, -128, 0}));
  EXPECT_EQ(values(x.to(DType::u8)), (std::vector<double>{0, 1, 255, 0, 255, 0, 0}));
  EXPECT_EQ(values(x.to(DType::i32)), (std::vector<double>{-1, 1, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 0}));
  const Tensor wide = x.to(DType::i64);
  EXPECT_EQ(wide.data<std::int64_t>()[2], INT64_MAX);
  EXPECT_EQ(wide.data<std::int64_t>()[3], INT64_MIN);
  EXPECT_EQ(values(x.to(DType::boolean)), (std::vector<double>{1, 1, 1, 1, 1, 1, 1}));
}

TEST(To, FloatsKeepNanAndInfinity) {
  const Tensor x = tensor({kNan, kInf, -kInf, 1e300, -0.0}, {5});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const auto y = values(x.to(dtype));
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], kInf);
    EXPECT_EQ(y[2], -kInf);
    EXPECT_EQ(y[3], kInf);
    EXPECT_TRUE(std::signbit(y[4]));
  }
}

TEST(To, SixtyFourBitIntegersAreCopiedExactlyAndRoundedOnce) {
  const std::vector<std::int64_t> all{INT64_MAX, INT64_MIN, (std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1};
  const Tensor x = integers(all);
  const Tensor copied = Tensor::empty({3, 2}, DType::i64).slice(1, 0, 1).transpose(0, 1).select(0, 0);
  copied.copy_from(x);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(copied.contiguous().data<std::int64_t>()[i], all[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(x.to(DType::f32).data<float>()[2], 0x1.000002p60f);  // by way of double it would be 0x1p60
}

}  // namespace
}  // namespace attn::test
