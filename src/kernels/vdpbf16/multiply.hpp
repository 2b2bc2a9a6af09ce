// Products of bf16 pairs by vdpbf16ps: a broadcast pair of A against 16 columns of B.
#pragma once

#include <immintrin.h>

#include "kernels/bf16/parts.hpp"
#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kRowStep = 1;                                       // rows of C that a product takes at once
constexpr int kDepthStep = 2;                                     // depth likewise
constexpr int kStripRows = 96;                                    // of a dense product, at once
constexpr int kBlockDepth = 1024;                                 // and its depth
constexpr int kMostParts = 1;                                     // three products are more than twice one of float32
constexpr BackwardCut kGradientCuts[3] = {{4, 96, 96, 1 << 18}};  // of the backward pass
constexpr bool kWorksBeside = false;
struct Session {};  // what the unit needs while a task runs: nothing

inline __attribute__((always_inline)) __m512bh broadcast_pair(const std::uint16_t* pair) {
  std::int32_t bits;
  __builtin_memcpy(&bits, pair, sizeof bits);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

template <int Rows, bool Accumulate>
inline __attribute__((always_inline)) void dot_tile(const Left& a, const Right& b, float* c, std::int64_t pairs) {
  __m512 sum[Rows][kWidth];
  ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
      sum[i][w] = Accumulate ? _mm512_loadu_ps(c + i * kColumns + w * kLanes) : _mm512_setzero_ps();
    }
  }
  const std::uint16_t *left = a.data, *right = b.data;
  for (std::int64_t k = 0; k < pairs; ++k) {
    __m512bh columns[kWidth];
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
      columns[w] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right + w * 2 * kLanes));
    }
    ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
      const __m512bh pair = broadcast_pair(left + i * a.row);
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) sum[i][w] = _mm512_dpbf16_ps(sum[i][w], pair, columns[w]);
    }
    left += 2;
    right += 2 * kColumns;
  }
  ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) _mm512_storeu_ps(c + i * kColumns + w * kLanes, sum[i][w]);
  }
}

// The same for `rows` of a tile's last few.
template <int Rows, bool Accumulate>
void dot_tail(std::int64_t rows, const Left& a, const Right& b, float* c, std::int64_t pairs) {
  if constexpr (Rows > 0) {
    if (rows == Rows) {
      dot_tile<Rows, Accumulate>(a, b, c, pairs);
    } else {
      dot_tail<Rows - 1, Accumulate>(rows, a, b, c, pairs);
    }
  }
}

// C (rows, kColumns) (+)= A · B, over `pairs` pairs in order.
template <bool Accumulate>
void multiply(std::int64_t rows, Left a, const Right& b, float* c, std::int64_t pairs) {
  for (; rows >= kRows; rows -= kRows) {
    dot_tile<kRows, Accumulate>(a, b, c, pairs);
    a.data += kRows * a.row;
    c += kRows * kColumns;
  }
  dot_tail<kRows - 1, Accumulate>(rows, a, b, c, pairs);
}

// The same, and nothing waits; `beside` may have waited for what was stored before.
struct Waiting {
  void finish() {}
};
template <int, bool Accumulate, Streams = Streams::left, class Beside>
void multiply_in_turn(std::int64_t rows, Left a, const Right& b, float* c, std::int64_t pairs, Beside& beside,
                      Waiting&) {
  beside();
  multiply<Accumulate>(rows, a, b, c, pairs);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
