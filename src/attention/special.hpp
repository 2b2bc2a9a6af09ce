// Infinities and NaN among numbers: whether there are any, copies without them, and rows that hold them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "attn/tensor.hpp"

namespace attn {

// Row (b, h, i) of a tensor (b, h, t, width).
inline void* row_at(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t at = b * t.stride(0) + h * t.stride(1) + i * t.stride(2);
  return static_cast<std::byte*>(t.raw()) + at * static_cast<std::int64_t>(size_of(t.dtype()));
}

// Says whether all `width` numbers of a row of a floating dtype are finite, and of magnitudes below `least`.
bool is_finite(const void* row, DType dtype, std::int64_t width, float least = std::numeric_limits<float>::infinity());

// Returns, by b · heads + h, the tokens of rows (b, h, t, width) whose rows hold infinities or NaN, or magnitudes from
// `least` on.
std::vector<std::vector<std::int64_t>> special_tokens(const Tensor& rows,
                                                      float least = std::numeric_limits<float>::infinity());

// A float32 copy (b, h, t, width), contiguous, with 0 in place of these.
Tensor without_specials(const Tensor& rows, float least = std::numeric_limits<float>::infinity());

// A finite number past the dtype's range becomes its largest.
void store_saturated(std::span<const float> row, void* to, DType dtype);

}  // namespace attn
