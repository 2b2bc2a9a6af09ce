// All steps read rows of any float dtype into a wider type, and write them back.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "attn/error.hpp"
#include "attn/tensor.hpp"
#include "core/visit.hpp"

namespace attn::reference {

// Sums of products of T are exact enough, and cannot overflow, in Wide<T>.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, long double, double>;

template <class T>
Wide<T> widen(T value) noexcept {
  return static_cast<Wide<T>>(to_double(value));
}

// T's largest finite value.
template <class T>
constexpr Wide<T> largest() noexcept {
  if constexpr (std::is_same_v<T, float16>) return 65504;
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1.fep127;
  if constexpr (!is_half<T>) return static_cast<Wide<T>>(std::numeric_limits<T>::max());
}

// A finite value past T's range becomes T's largest: finite in, finite out. Infinities and NaN pass.
template <class T>
T narrow(Wide<T> value) noexcept {
  if (std::isfinite(value)) value = std::clamp<Wide<T>>(value, -largest<T>(), largest<T>());
  if constexpr (is_half<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// The loops compute with these. A build that is for float32 alone, as a page's is, has no other loops.
#if defined(ATTN_FLOAT32_ALONE)
inline constexpr const char* kComputed = "float32";
template <class T>
inline constexpr bool is_computed = std::is_same_v<T, float>;
#else
inline constexpr const char* kComputed = "float32, float64, float16 or bfloat16";
template <class T>
inline constexpr bool is_computed = !std::is_integral_v<T>;
#endif

// Calls f(T{}) for a floating dtype, throws Error for another.
template <class F>
decltype(auto) visit_floating(const char* op, DType dtype, F&& f) {
  return visit(dtype, [&]([[maybe_unused]] auto zero) -> decltype(f(float{})) {
    if constexpr (is_computed<decltype(zero)>) {
      return f(zero);
    } else {
      throw Error(Error::Kind::dtype, op, kComputed, name(dtype));
    }
  });
}

inline void require(bool ok, const char* op, const std::string& expected, const std::string& found) {
  if (!ok) throw Error(Error::Kind::shape, op, expected, found);
}

inline void require_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype())
    throw Error(Error::Kind::dtype, op, std::string(name(a.dtype())), std::string(name(b.dtype())));
}

// All but the last `n` sizes.
inline Shape leading(const Shape& shape, std::size_t n) {
  return Shape(std::span<const std::int64_t>(shape.begin(), shape.size() - n));
}

// `x` as (batch, rows, columns), contiguous.
inline Tensor as_matrices(const Tensor& x) {
  const std::int64_t rows = x.size(-2), columns = x.size(-1);
  return x.contiguous().view({leading(x.shape(), 2).numel(), rows, columns});
}

// `x` as (rows, columns), contiguous.
inline Tensor as_rows(const Tensor& x) {
  const std::int64_t columns = x.size(-1);
  return x.contiguous().view({leading(x.shape(), 1).numel(), columns});
}

}  // namespace attn::reference
