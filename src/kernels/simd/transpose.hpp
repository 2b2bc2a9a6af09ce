// Squares of a vector's width, rows to columns.
#pragma once

#include "kernels/simd/tile.hpp"
#include "kernels/simd/vector.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// A vector is parts of four lanes. Within all parts at once, and of whole parts: the moves that take one instruction.
#if defined(__AVX512F__)
#define ATTN_IN_PARTS(LANES) LANES(0), LANES(4), LANES(8), LANES(12)
#elif defined(__AVX2__)
#define ATTN_IN_PARTS(LANES) LANES(0), LANES(4)
#else
#define ATTN_IN_PARTS(LANES) LANES(0)
#endif
#define ATTN_PART(p) p, p + 1, p + 2, p + 3
#define ATTN_ZIP_LOW(p) p, kLanes + p, p + 1, kLanes + p + 1
#define ATTN_ZIP_HIGH(p) p + 2, kLanes + p + 2, p + 3, kLanes + p + 3
#define ATTN_JOIN_LOW(p) p, p + 1, kLanes + p, kLanes + p + 1
#define ATTN_JOIN_HIGH(p) p + 2, p + 3, kLanes + p + 2, kLanes + p + 3
#define ATTN_MOVE(a, b, LANES) __builtin_shufflevector(a, b, ATTN_IN_PARTS(LANES))

// Part q of row 4p + t and part p of row 4q + t change places, for all p, q and t.
inline __attribute__((always_inline)) void transpose_parts([[maybe_unused]] Vec (&v)[kLanes]) {
#if defined(__AVX512F__)
  ATTN_UNROLL for (int t = 0; t < 4; ++t) {
    const Vec a = v[t], b = v[t + 4], c = v[t + 8], d = v[t + 12];
    const Vec ab_low = __builtin_shufflevector(a, b, ATTN_PART(0), ATTN_PART(4), ATTN_PART(16), ATTN_PART(20));
    const Vec ab_high = __builtin_shufflevector(a, b, ATTN_PART(8), ATTN_PART(12), ATTN_PART(24), ATTN_PART(28));
    const Vec cd_low = __builtin_shufflevector(c, d, ATTN_PART(0), ATTN_PART(4), ATTN_PART(16), ATTN_PART(20));
    const Vec cd_high = __builtin_shufflevector(c, d, ATTN_PART(8), ATTN_PART(12), ATTN_PART(24), ATTN_PART(28));
    v[t] = __builtin_shufflevector(ab_low, cd_low, ATTN_PART(0), ATTN_PART(8), ATTN_PART(16), ATTN_PART(24));
    v[t + 4] = __builtin_shufflevector(ab_low, cd_low, ATTN_PART(4), ATTN_PART(12), ATTN_PART(20), ATTN_PART(28));
    v[t + 8] = __builtin_shufflevector(ab_high, cd_high, ATTN_PART(0), ATTN_PART(8), ATTN_PART(16), ATTN_PART(24));
    v[t + 12] = __builtin_shufflevector(ab_high, cd_high, ATTN_PART(4), ATTN_PART(12), ATTN_PART(20), ATTN_PART(28));
  }
#elif defined(__AVX2__)
  ATTN_UNROLL for (int t = 0; t < 4; ++t) {
    const Vec a = v[t], b = v[t + 4];
    v[t] = __builtin_shufflevector(a, b, ATTN_PART(0), ATTN_PART(8));
    v[t + 4] = __builtin_shufflevector(a, b, ATTN_PART(4), ATTN_PART(12));
  }
#endif
}

// v[i][j] becomes v[j][i]. Nothing but moves, so that the lanes may hold any bits.
inline __attribute__((always_inline)) void transpose(Vec (&v)[kLanes]) {
  ATTN_UNROLL for (int i = 0; i < kLanes; i += 4) {
    const Vec ab_low = ATTN_MOVE(v[i], v[i + 1], ATTN_ZIP_LOW), cd_low = ATTN_MOVE(v[i + 2], v[i + 3], ATTN_ZIP_LOW);
    const Vec ab_high = ATTN_MOVE(v[i], v[i + 1], ATTN_ZIP_HIGH),
              cd_high = ATTN_MOVE(v[i + 2], v[i + 3], ATTN_ZIP_HIGH);
    v[i] = ATTN_MOVE(ab_low, cd_low, ATTN_JOIN_LOW);
    v[i + 1] = ATTN_MOVE(ab_low, cd_low, ATTN_JOIN_HIGH);
    v[i + 2] = ATTN_MOVE(ab_high, cd_high, ATTN_JOIN_LOW);
    v[i + 3] = ATTN_MOVE(ab_high, cd_high, ATTN_JOIN_HIGH);
  }
  transpose_parts(v);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
