#include "attn/dtype.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace attn {
namespace {

struct Info {
  std::string_view name, short_name;
  std::size_t bytes;
  bool floating;
  double largest;
};

constexpr std::array<Info, 9> kInfos{{{"float64", "f64", 8, true, std::numeric_limits<double>::max()},
                                      {"float32", "f32", 4, true, std::numeric_limits<float>::max()},
                                      {"float16", "f16", 2, true, 65504},
                                      {"bfloat16", "bf16", 2, true, 0x1.fep127},
                                      {"int64", "i64", 8, false, 0x1p63},
                                      {"int32", "i32", 4, false, std::numeric_limits<std::int32_t>::max()},
                                      {"int8", "i8", 1, false, 127},
                                      {"uint8", "u8", 1, false, 255},
                                      {"bool", "bool", 1, false, 1}}};

constexpr Info kUnknown{"unknown", "unknown", 0, false, 0};

// Of a number that was cast to a DType, too, of which no tensor is made.
const Info& info(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kInfos.size() ? kInfos[index] : kUnknown;
}

}  // namespace

std::size_t size_of(DType dtype) noexcept { return info(dtype).bytes; }
std::string_view name(DType dtype) noexcept { return info(dtype).name; }
bool is_floating(DType dtype) noexcept { return info(dtype).floating; }
double largest(DType dtype) noexcept { return info(dtype).largest; }

std::optional<DType> dtype_named(std::string_view text) noexcept {
  const auto found =
      std::ranges::find_if(kInfos, [&](const Info& i) { return i.name == text || i.short_name == text; });
  if (found == kInfos.end()) return std::nullopt;
  return static_cast<DType>(found - kInfos.begin());
}

float16::float16(float value) noexcept {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN
    bits = static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  } else if (magnitude >= 0x477ff000u) {  // rounds past 65504
    bits = static_cast<std::uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {
    // Subnormal or zero: adding 0.5 puts the units of 2^-24 in the lowest mantissa bits, rounded by the FPU.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  } else {
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
}

float16::operator float() const noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -value : value;
}

}  // namespace attn
