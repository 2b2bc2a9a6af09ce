// Squares of a vector's width, rows to columns.
#pragma once

#include "kernels/unit/simd.hpp"
#include "kernels/unit/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Lane 0 of both, lane 1 of both, ...: the lower halves of a and b; then the upper halves.
#if defined(__AVX512F__)
inline __attribute__((always_inline)) Vec zip_low(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline __attribute__((always_inline)) Vec zip_high(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX2__)
inline __attribute__((always_inline)) Vec zip_low(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline __attribute__((always_inline)) Vec zip_high(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
inline __attribute__((always_inline)) Vec zip_low(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline __attribute__((always_inline)) Vec zip_high(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#endif

// Each round of zips of rows i and i + kLanes / 2 rotates the index (row, lane) by one bit: log2(kLanes) rounds
// swap row and lane. Nothing but moves, so that the lanes may hold any bits.
inline __attribute__((always_inline)) void transpose(Vec (&v)[kLanes]) {
  ATTN_UNROLL for (int round = 1; round < kLanes; round *= 2) {
    Vec next[kLanes];
    ATTN_UNROLL for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = zip_low(v[i], v[i + kLanes / 2]);
      next[2 * i + 1] = zip_high(v[i], v[i + kLanes / 2]);
    }
    ATTN_UNROLL for (int i = 0; i < kLanes; ++i) v[i] = next[i];
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
