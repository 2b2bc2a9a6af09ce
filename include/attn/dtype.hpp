// Element types, and the two 16-bit floats that C++20 has no name for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace attn {

// A number that is cast to a DType and is none of these is called "unknown" and has 0 bytes: no tensor has it.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i8, u8, boolean };

// How many bytes one element takes.
std::size_t size_of(DType dtype) noexcept;
// The name that NumPy and PyTorch use: "float32", "bfloat16", "bool", …
std::string_view name(DType dtype) noexcept;
bool is_floating(DType dtype) noexcept;
// The dtype of that name, or of the short one by which this library calls it, "bf16"; none for other texts.
std::optional<DType> dtype_named(std::string_view text) noexcept;
// The largest finite number of a floating dtype; of integers, as a double rounds it.
double largest(DType dtype) noexcept;

// bfloat16 is float32's upper half. Conversion rounds to nearest even; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

// IEEE 754 binary16. Conversion rounds to nearest even; NaN stays NaN.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  explicit float16(float value) noexcept;
  explicit operator float() const noexcept;
};

// The DType of a C++ element type: dtype_of<float> is DType::f32.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "attn has no such element type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<float16> = DType::f16;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

}  // namespace attn
