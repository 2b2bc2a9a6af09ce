// Products of bf16 pairs by AMX tiles: 2 × 2 tiles of 16 × 16 sums, each TDPBF16PS adding 16 pairs of depth.
#pragma once

#include "kernels/bf16/parts.hpp"
#include "kernels/table.hpp"
#if defined(ATTN_AMX_EMULATED)
#include "kernels/amx/tiles_emulated.hpp"
#else
#include "kernels/amx/tiles.hpp"
#endif

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kRowStep = 16;      // rows of C that a product takes at once
constexpr int kDepthStep = 32;    // depth likewise: 16 pairs
constexpr int kStripRows = 32;    // of a dense product, beside which another's results are written
constexpr int kBlockDepth = 512;  // and its depth: a strip stays in L1
constexpr int kMostParts = 3;
constexpr bool kWorksBeside = true;  // the vector units are free meanwhile
static_assert(kColumns == 32, "two tiles across");

// How the backward pass is cut, by the number of parts. A tile of sums comes from L2 and goes back there: for dk and dv
// after 16 products in a row with one part, and after 24 with more.
constexpr BackwardCut kGradientCuts[3] = {{16, 256, 32, 1 << 18}, {8, 128, 32, 1 << 17}, {4, 128, 32, 1 << 16}};

// Tiles 0 to 3 hold the sums, 4 and 5 rows of A, 6 and 7 columns of B. For one row of tiles, 2, 3 and 5 rest.
template <int Tile, bool IsStreamed>
inline void load_operand(const void* from, std::int64_t step) {
  IsStreamed ? tile_stream<Tile>(from, step) : tile_load<Tile>(from, step);
}

template <int RowTiles, bool IsStreamed>
inline void load_left(const std::uint16_t* left, std::int64_t row) {
  load_operand<4, IsStreamed>(left, row * 2);
  if constexpr (RowTiles == 2) load_operand<5, IsStreamed>(left + 16 * row, row * 2);
}

template <bool IsStreamed>
inline void load_right(const std::uint16_t* right) {
  constexpr std::int64_t kStep = kColumns * 4;  // bytes
  load_operand<6, IsStreamed>(right, kStep), load_operand<7, IsStreamed>(right + 32, kStep);
}

template <int RowTiles>
inline void multiply_operands() {
  tile_multiply<0, 4, 6>(), tile_multiply<1, 4, 7>();
  if constexpr (RowTiles == 2) tile_multiply<2, 5, 6>(), tile_multiply<3, 5, 7>();
}

// The first product of a tile of sums of C, which stores those that waited there.
template <int Sum, int A, int B, bool Accumulate>
inline void begin_sum(const float* c, float* waiting, std::int64_t at) {
  constexpr std::int64_t kStep = kColumns * 4;  // bytes
  if (waiting) tile_store<Sum>(waiting + at, kStep);
  if constexpr (Accumulate) {
    tile_load<Sum>(c + at, kStep);
  } else {
    tile_zero<Sum>();
  }
  tile_multiply<Sum, A, B>();
}

template <int RowTiles, bool Accumulate>
inline __attribute__((always_inline)) void begin_sums(const float* c, float* waiting) {
  begin_sum<0, 4, 6, Accumulate>(c, waiting, 0), begin_sum<1, 4, 7, Accumulate>(c, waiting, 16);
  if constexpr (RowTiles == 2) {
    begin_sum<2, 5, 6, Accumulate>(c, waiting, 16 * kColumns);
    begin_sum<3, 5, 7, Accumulate>(c, waiting, 16 * kColumns + 16);
  }
}

template <int RowTiles>
inline void store_sums(float* c) {
  constexpr std::int64_t kStep = kColumns * 4;
  tile_store<0>(c, kStep), tile_store<1>(c + 16, kStep);
  if constexpr (RowTiles == 2) tile_store<2>(c + 16 * kColumns, kStep), tile_store<3>(c + 16 * kColumns + 16, kStep);
}

// Multiplies what is left of a step of three products, or six, after high · lowest. One operand changes at a time;
// `left` and `right` load a part of it.
template <int Products, class LoadLeft, class LoadRight, class Multiply>
inline __attribute__((always_inline)) void multiply_parts(const LoadLeft& left, const LoadRight& right,
                                                          const Multiply& multiply) {
  if constexpr (Products == 1) return;
  if constexpr (Products == 3) {
    right(0), multiply();  // high · high
    left(1), multiply();   // low · high
    return;
  }
  right(1), multiply();  // high · middle
  left(1), multiply();   // middle · middle
  right(0), multiply();  // middle · high
  left(2), multiply();   // low · high
  left(0), multiply();   // high · high
}

// One row of tiles or two. Leaves the sums in the tiles.
template <int Products, int RowTiles, bool Accumulate, Streams Streamed, class Beside>
inline void multiply_rows(const Left& a, const Right& b, const float* c, std::int64_t pairs, Beside& beside,
                          float* waiting) {
  constexpr int kLowest = Products == 6 ? 2 : Products == 3 ? 1 : 0;
  const auto multiply = [&] { multiply_operands<RowTiles>(), beside(); };
  for (std::int64_t k = 0; k < pairs; k += 16) {
    const auto left = [&](int part) {
      load_left<RowTiles, Streamed == Streams::left>(a.data + part * a.part + 2 * k, a.row);
    };
    const auto right = [&](int part) {
      load_right<Streamed == Streams::right>(b.data + part * b.part + k * 2 * kColumns);
    };
    right(kLowest), left(0);
    k == 0 ? begin_sums<RowTiles, Accumulate>(c, waiting) : multiply_operands<RowTiles>();
    beside();
    multiply_parts<Products>(left, right, multiply);
  }
}

// Sums in the tiles, and where they go. They are stored between the first products of the next, where that takes no
// time; right after their own products the stores would wait for these, and hold up the next.
class Waiting {
 public:
  void add(float* sums) { sums_ = sums; }
  float* sums() const { return sums_; }
  void finish() {
    if (sums_) store_sums<2>(sums_);
    sums_ = nullptr;
  }

 private:
  float* sums_ = nullptr;
};

// C (rows, kColumns) (+)= A · B, over `pairs` pairs, one product of bf16 parts, three or six. Rows are a multiple of
// kRowStep, pairs of kDepthStep / 2, one at least. The tiles multiply while the vector units do what `beside` calls
// for. What waited is in memory when that is first called; C's last rows wait in turn.
template <int Products, bool Accumulate, Streams Streamed = Streams::left, class Beside>
inline void multiply_in_turn(std::int64_t rows, Left a, const Right& b, float* c, std::int64_t pairs, Beside& beside,
                             Waiting& waiting) {
  for (; rows >= 32; rows -= 32) {
    multiply_rows<Products, 2, Accumulate, Streamed>(a, b, c, pairs, beside, waiting.sums());
    waiting.add(c);
    a.data += 32 * a.row;
    c += 32 * kColumns;
  }
  if (rows == 0) return;
  waiting.finish();
  multiply_rows<Products, 1, Accumulate, Streamed>(a, b, c, pairs, beside, nullptr);
  store_sums<1>(c);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
