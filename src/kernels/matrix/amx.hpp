// Products of bf16 pairs by AMX tiles: 2 × 2 tiles of 16 × 16 sums, each TDPBF16PS adding 16 pairs of depth.
// Developed where no AMX was at hand: the tests prove its logic on emulated tiles, its speed is not yet measured.
#pragma once

#include "kernels/matrix/operands.hpp"
#if defined(ATTN_AMX_EMULATED)
#include "kernels/matrix/tiles_emulated.hpp"
#else
#include "kernels/matrix/tiles.hpp"
#endif

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kRowStep = 16;    // rows of C that a product takes at once
constexpr int kDepthStep = 32;  // depth likewise: 16 pairs
constexpr bool kTakesHigh = true;
static_assert(kColumns == 32, "two tiles across");

// Tiles 0 to 3 hold the sums, 4 and 5 rows of A, 6 and 7 columns of B. For one row of tiles, 2, 3 and 5 rest.
template <int RowTiles, bool Accumulate>
inline void amx_tile(const Left& a, const Right& b, float* c, std::int64_t pairs, int parts) {
  constexpr std::int64_t kSumStep = kColumns * 4, kRightStep = kColumns * 4;  // bytes
  constexpr bool kTwo = RowTiles == 2;
  if constexpr (Accumulate) {
    tile_load<0>(c, kSumStep), tile_load<1>(c + 16, kSumStep);
    if constexpr (kTwo) tile_load<2>(c + 16 * kColumns, kSumStep), tile_load<3>(c + 16 * kColumns + 16, kSumStep);
  } else {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (kTwo) tile_zero<2>(), tile_zero<3>();
  }
  for (int part = 0; part < parts; ++part) {
    const std::uint16_t* left = a.data + left_part(part) * a.part;
    const std::uint16_t* right = b.data + right_part(part) * b.part;
    for (std::int64_t k = 0; k < pairs; k += 16) {
      tile_load<4>(left, a.row * 2);
      tile_load<6>(right, kRightStep);
      tile_multiply<0, 4, 6>();
      tile_load<7>(right + 32, kRightStep);
      tile_multiply<1, 4, 7>();
      if constexpr (kTwo) {
        tile_load<5>(left + 16 * a.row, a.row * 2);
        tile_multiply<2, 5, 6>();
        tile_multiply<3, 5, 7>();
      }
      left += 32;
      right += 32 * kColumns;
    }
  }
  tile_store<0>(c, kSumStep), tile_store<1>(c + 16, kSumStep);
  if constexpr (kTwo) tile_store<2>(c + 16 * kColumns, kSumStep), tile_store<3>(c + 16 * kColumns + 16, kSumStep);
}

// C (rows, kColumns) (+)= A · B, over `pairs` pairs of each of `parts` parts, in order. Rows are a multiple of
// kRowStep, pairs of kDepthStep / 2.
template <bool Accumulate>
void multiply(std::int64_t rows, Left a, const Right& b, float* c, std::int64_t pairs, int parts) {
  for (; rows >= 32; rows -= 32) {
    amx_tile<2, Accumulate>(a, b, c, pairs, parts);
    a.data += 32 * a.row;
    c += 32 * kColumns;
  }
  if (rows > 0) amx_tile<1, Accumulate>(a, b, c, pairs, parts);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
