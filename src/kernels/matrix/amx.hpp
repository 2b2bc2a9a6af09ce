// Products of bf16 pairs by AMX tiles: 2 × 2 tiles of 16 × 16 sums, each TDPBF16PS adding 16 pairs of depth.
#pragma once

#include "kernels/matrix/operands.hpp"
#if defined(ATTN_AMX_EMULATED)
#include "kernels/matrix/tiles_emulated.hpp"
#else
#include "kernels/matrix/tiles.hpp"
#endif

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kRowStep = 16;      // rows of C that a product takes at once
constexpr int kDepthStep = 32;    // depth likewise: 16 pairs
constexpr int kStripRows = 32;    // of a dense product, beside which another's results are written
constexpr int kBlockDepth = 512;  // and its depth: a strip stays in L1
constexpr bool kTakesHigh = true;
static_assert(kColumns == 32, "two tiles across");

// Tiles 0 to 3 hold the sums, 4 and 5 rows of A, 6 and 7 columns of B. For one row of tiles, 2, 3 and 5 rest. Columns
// that pass by once are streamed: they leave in L1 what is there.
template <int RowTiles, bool StreamsRight>
inline void load_operands(const std::uint16_t* left, std::int64_t row, const std::uint16_t* right) {
  constexpr std::int64_t kRightStep = kColumns * 4;  // bytes
  if constexpr (StreamsRight) {
    tile_stream<6>(right, kRightStep), tile_stream<7>(right + 32, kRightStep);
  } else {
    tile_load<6>(right, kRightStep), tile_load<7>(right + 32, kRightStep);
  }
  tile_load<4>(left, row * 2);
  if constexpr (RowTiles == 2) tile_load<5>(left + 16 * row, row * 2);
}

template <int RowTiles>
inline void multiply_operands() {
  tile_multiply<0, 4, 6>(), tile_multiply<1, 4, 7>();
  if constexpr (RowTiles == 2) tile_multiply<2, 5, 6>(), tile_multiply<3, 5, 7>();
}

// Row tiles of C from memory, or zeros.
template <int RowTiles, bool Accumulate>
inline void load_sums(const float* c) {
  constexpr std::int64_t kStep = kColumns * 4;  // bytes
  if constexpr (Accumulate) {
    tile_load<0>(c, kStep), tile_load<1>(c + 16, kStep);
    if constexpr (RowTiles == 2) tile_load<2>(c + 16 * kColumns, kStep), tile_load<3>(c + 16 * kColumns + 16, kStep);
  } else {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (RowTiles == 2) tile_zero<2>(), tile_zero<3>();
  }
}

template <int RowTiles>
inline void store_sums(float* c) {
  constexpr std::int64_t kStep = kColumns * 4;
  tile_store<0>(c, kStep), tile_store<1>(c + 16, kStep);
  if constexpr (RowTiles == 2) tile_store<2>(c + 16 * kColumns, kStep), tile_store<3>(c + 16 * kColumns + 16, kStep);
}

// One row of tiles or two, whose first operands are loaded. Leaves the sums in the tiles.
template <int RowTiles, bool StreamsRight, class Beside>
inline void multiply_rows(const Left& a, const Right& b, std::int64_t pairs, int parts, Beside& beside) {
  multiply_operands<RowTiles>();
  beside();
  std::int64_t k = 16;
  for (int part = 0; part < parts; ++part, k = 0) {
    const std::uint16_t* left = a.data + left_part(part) * a.part + 2 * k;
    const std::uint16_t* right = b.data + right_part(part) * b.part + k * 2 * kColumns;
    for (; k < pairs; k += 16, left += 32, right += 32 * kColumns) {
      load_operands<RowTiles, StreamsRight>(left, a.row, right);
      multiply_operands<RowTiles>();
      beside();
    }
  }
}

// C (rows, kColumns) (+)= A · B, over `pairs` pairs of each of `parts` parts, in order. Rows are a multiple of
// kRowStep, pairs of kDepthStep / 2, one at least. The tiles multiply while the vector units do what `beside` calls
// for. Operands of the next rows are loaded before sums are stored, which waits for the products.
template <bool Accumulate, bool StreamsRight = false, class Beside>
void multiply(std::int64_t rows, Left a, const Right& b, float* c, std::int64_t pairs, int parts, Beside& beside) {
  if (rows >= 32) load_operands<2, StreamsRight>(a.data, a.row, b.data);
  for (; rows >= 32; rows -= 32) {
    load_sums<2, Accumulate>(c);
    multiply_rows<2, StreamsRight>(a, b, pairs, parts, beside);
    a.data += 32 * a.row;
    if (rows >= 64) load_operands<2, StreamsRight>(a.data, a.row, b.data);
    store_sums<2>(c);
    c += 32 * kColumns;
  }
  if (rows == 0) return;
  load_operands<1, StreamsRight>(a.data, a.row, b.data);
  load_sums<1, Accumulate>(c);
  multiply_rows<1, StreamsRight>(a, b, pairs, parts, beside);
  store_sums<1>(c);
}

template <bool Accumulate>
void multiply(std::int64_t rows, Left a, const Right& b, float* c, std::int64_t pairs, int parts) {
  const auto nothing = [] {};
  multiply<Accumulate>(rows, a, b, c, pairs, parts, nothing);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
