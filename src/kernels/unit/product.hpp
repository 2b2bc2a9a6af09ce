// Dense products for the projections, on the same tiles as attention: an element's sum runs over the depth in
// order, so that it does not depend on the other rows, the other columns, or the threads.
#pragma once

#include "kernels/product.hpp"
#include "kernels/unit/elements.hpp"
#include "kernels/unit/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kTaskHeight = 8 * kRows;    // rows of a task
constexpr std::int64_t kTaskWidth = 8 * kColumns;  // columns of a task

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// b is packed into panels of kColumns columns, (depth, kColumns) each, zeros past the last column.
inline std::int64_t panels(const Product& p) { return ceil_div(p.n, kColumns); }

inline std::int64_t packed_floats(const Product& p) { return panels(p) * p.k * kColumns; }

inline void pack_panel(const Product& p, float* packed, std::int64_t panel_index) {
  const std::int64_t first = panel_index * kColumns, columns = p.n - first < kColumns ? p.n - first : kColumns;
  float* out = packed + first * p.k;
  for (std::int64_t l = 0; l < p.k; ++l) {
    const float* in = p.b + l * p.b_depth + first * p.b_column;
    for (std::int64_t j = 0; j < columns; ++j) out[l * kColumns + j] = in[j * p.b_column];
    for (std::int64_t j = columns; j < kColumns; ++j) out[l * kColumns + j] = 0;
  }
}

inline std::int64_t product_tasks(const Product& p) { return ceil_div(p.m, kTaskHeight) * ceil_div(p.n, kTaskWidth); }

inline std::size_t product_scratch(const Product&) { return kTaskHeight * kColumns * sizeof(float); }

inline bool product(const Product& p, const float* packed, std::int64_t task, void* scratch) {
  const std::int64_t across = ceil_div(p.n, kTaskWidth);
  const std::int64_t row = task / across * kTaskHeight, rows = p.m - row < kTaskHeight ? p.m - row : kTaskHeight;
  const std::int64_t begin = task % across * kTaskWidth, end = begin + kTaskWidth < p.n ? begin + kTaskWidth : p.n;
  auto* sums = static_cast<float*>(scratch);
  std::uint32_t out_of_range = 0;
  for (std::int64_t first = begin; first < end; first += kColumns) {
    panel<false>(rows, p.a + row * p.a_row, p.a_row, p.a_depth, packed + first * p.k, kColumns, sums, kColumns, p.k);
    const std::int64_t columns = end - first < kColumns ? end - first : kColumns;
    for (std::int64_t i = 0; i < rows; ++i) {
      float* out = p.c + (row + i) * p.c_row + first;
      for (std::int64_t j = 0; j < columns; ++j) {
        out[j] = sums[i * kColumns + j] + (p.bias ? p.bias[first + j] : 0);
        out_of_range |= (float_to_bits(out[j]) & 0x7f800000u) == 0x7f800000u;
      }
    }
  }
  return out_of_range == 0;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
