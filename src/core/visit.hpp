// From a run-time DType to a compile-time element type, and back through double.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "attn/dtype.hpp"

namespace attn {

// Calls f with a value of the element type: visit(dtype, [&](auto zero) { using T = decltype(zero); … }).
template <class F>
decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::f16:
      return f(float16{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::boolean:
      break;
  }
  return f(bool{});
}

template <class T>
inline constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <class T>
double to_double(T value) noexcept {
  if constexpr (is_half<T>) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
T from_double(double value) noexcept {
  if constexpr (is_half<T>) {
    return T(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    // Out of range is undefined in C++: NaN becomes 0, the rest saturates.
    constexpr auto low = static_cast<double>(std::numeric_limits<T>::min());
    constexpr auto high = static_cast<double>(std::numeric_limits<T>::max());
    if (!(value == value)) return 0;
    if (value <= low) return std::numeric_limits<T>::min();
    if (value >= high) return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// A number of another element type: through float where that holds both, as integers where they are.
template <class To, class From>
To converted(From value) noexcept {
  constexpr bool from_float = std::is_same_v<From, float> || is_half<From>;
  if constexpr (std::is_same_v<To, From> || (std::is_integral_v<From> && std::is_floating_point_v<To>)) {
    return static_cast<To>(value);  // 64-bit integers do not fit a double
  } else if constexpr (from_float && (std::is_same_v<To, float> || is_half<To>)) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return from_double<To>(to_double(value));
  }
}

}  // namespace attn
