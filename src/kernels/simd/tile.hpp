// The matrix core of float32: products of the float tiles, forward and backward, and dense ones of many rows.
#pragma once

#include "kernels/simd/vector.hpp"

// Both compilers unroll by this, and then keep the arrays in registers.
#define ATTN_UNROLL _Pragma("GCC unroll 16")

namespace attn::kernels::ATTN_UNIT {
namespace {

// A tile is kRows × kColumns: kRows broadcasts against kWidth vectors fill the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRows = 12;  // 24 accumulators of 32 registers
#else
constexpr int kRows = 6;  // 12 of 16
#endif
constexpr int kWidth = 2;
constexpr int kColumns = kWidth * kLanes;

// C[i][0..kColumns) (+)= Σ_k A[i · row_step + k · depth_step] · B[k · ldb + 0..kColumns)
// for i in [0, Rows). The sum runs over k in order, one fused multiply-add each: a row's result does not
// depend on the rows computed with it. beside(line of B, pairs of k that are left) with every
// second k.
template <int Rows, bool Accumulate, class... Beside>
inline __attribute__((always_inline)) void tile(const float* a, std::int64_t row_step, std::int64_t depth_step,
                                                const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                                                std::int64_t depth, Beside&... beside) {
  Vec sum[Rows][kWidth];
  ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) sum[i][w] = Accumulate ? load(c + i * ldc + w * kLanes) : splat(0.f);
  }
  const auto step = [&]() __attribute__((always_inline)) {
    Vec right[kWidth];
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) right[w] = load(b + w * kLanes);
    ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
      const Vec left = splat(a[i * row_step]);
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) sum[i][w] = left * right[w] + sum[i][w];
    }
    a += depth_step;
    b += ldb;
  };
  // Two a round: half of the loop's own instructions, which take places of the multiply-adds.
  for (std::int64_t pairs = depth / 2; pairs > 0; --pairs) (beside(b, pairs), ...), step(), step();
  if (depth % 2 != 0) step();
  ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) store(c + i * ldc + w * kLanes, sum[i][w]);
  }
}

// The same for `rows` of a tile's last few.
template <int Rows, bool Accumulate>
void tile_tail(int rows, const float* a, std::int64_t row_step, std::int64_t depth_step, const float* b,
               std::int64_t ldb, float* c, std::int64_t ldc, std::int64_t depth) {
  if constexpr (Rows > 0) {
    if (rows == Rows) {
      tile<Rows, Accumulate>(a, row_step, depth_step, b, ldb, c, ldc, depth);
    } else {
      tile_tail<Rows - 1, Accumulate>(rows, a, row_step, depth_step, b, ldb, c, ldc, depth);
    }
  }
}

// kColumns of a product with any number of rows; beside() before each whole tile, or within it once in kDepthACall k.
template <bool Accumulate, std::int64_t kDepthACall = 0, class... Beside>
void panel(std::int64_t rows, const float* a, std::int64_t row_step, std::int64_t depth_step, const float* b,
           std::int64_t ldb, float* c, std::int64_t ldc, std::int64_t depth, Beside&... beside) {
  const auto within = [&](const float*, std::int64_t pairs) __attribute__((always_inline)) {
    if constexpr (kDepthACall > 0) {
      if (pairs % (kDepthACall / 2) == 0) (beside(), ...);
    }
  };
  std::int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    if constexpr (kDepthACall == 0) (beside(), ...);
    tile<kRows, Accumulate>(a + i * row_step, row_step, depth_step, b, ldb, c + i * ldc, ldc, depth, within);
  }
  tile_tail<kRows - 1, Accumulate>(static_cast<int>(rows - i), a + i * row_step, row_step, depth_step, b, ldb,
                                   c + i * ldc, ldc, depth);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
