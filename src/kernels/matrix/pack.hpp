// Rows of q, k and v as operands of bf16 pairs. Everything past a row's end or the last row becomes zero.
#pragma once

#include <immintrin.h>

#include "kernels/matrix/operands.hpp"
#include "kernels/unit/carver.hpp"
#include "kernels/unit/elements.hpp"
#include "kernels/unit/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Whether products of bf16 parts are faster here than float32's.
inline bool takes(Element element, Precision precision) {
  if (element != Element::f32) return element == Element::bf16;
  return precision == Precision::medium || (precision == Precision::high && kTakesHigh);
}

// Of an operand's numbers, and of a product of two such.
inline int parts_of(Element element, Precision precision) {
  return element == Element::f32 && precision == Precision::high ? 2 : 1;
}
inline int products_of(int parts) { return parts == 2 ? 3 : 1; }
// Where low parts are, from the high ones: 0 when there are none.
inline std::int64_t low_part(int parts, std::int64_t distance) { return parts == 2 ? distance : 0; }

inline std::uint16_t* halves(Carver& take, std::int64_t count) {
  return reinterpret_cast<std::uint16_t*>(take((count + 1) / 2));
}

using Pairs = std::uint32_t __attribute__((vector_size(kLanes * 4)));

// 32 numbers in bf16: their high parts are the numbers rounded, their low parts what that left, rounded.
struct Parts {
  __m512i high, low;
};

inline __attribute__((always_inline)) __m512i round_bf16(Vec first, Vec second) {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
}

// The nearest of bf16's numbers. Of NaN it may be any: what is left stays NaN.
inline __attribute__((always_inline)) Vec high_part(Vec x) {
  return reinterpret_cast<Vec>((reinterpret_cast<VecU>(x) + 0x8000u) & 0xffff0000u);
}

template <bool kLow>
inline __attribute__((always_inline)) Parts split(Vec first, Vec second) {
  if (!kLow) return {round_bf16(first, second), _mm512_setzero_si512()};
  const Vec high_first = high_part(first), high_second = high_part(second);
  return {round_bf16(high_first, high_second), round_bf16(first - high_first, second - high_second)};
}

// Elements [at, at + 32) of a row of `width` (null: no such row), times a factor.
template <bool kLow>
inline __attribute__((always_inline)) Parts load_parts(Element element, const void* row, std::int64_t at,
                                                       std::int64_t width, float factor = 1) {
  if (!row || at >= width) return {_mm512_setzero_si512(), _mm512_setzero_si512()};
  const std::uint32_t mask = width - at >= 32 ? 0xffffffffu : (1u << (width - at)) - 1;
  if (element == Element::f32) {
    const float* from = static_cast<const float*>(row) + at;
    const auto first = reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from));
    const auto second = reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + kLanes));
    return split<kLow>(first * splat(factor), second * splat(factor));
  }
  const __m512i bits = _mm512_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(row) + at);
  if (factor == 1) return {bits, _mm512_setzero_si512()};
  std::uint16_t lanes[2 * kLanes];
  _mm512_storeu_si512(lanes, bits);
  return split<kLow>(from_bf16(half_lanes(lanes)) * splat(factor),
                     from_bf16(half_lanes(lanes + kLanes)) * splat(factor));
}

// The order of pairs: number i of one row and of another, from `first` on.
inline __attribute__((always_inline)) __m512i pair_order(int first) {
  constexpr std::uint32_t one = 1u | 1u << 16;
  using Words = std::uint32_t __attribute__((vector_size(64)));
  Words order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  order += static_cast<std::uint32_t>(first);
  return reinterpret_cast<__m512i>(order * one + (32u << 16));
}

// Two rows of 32 bf16, number by number beside each other: from `from` on, 16 pairs.
inline __attribute__((always_inline)) __m512i pairs_of(__m512i first, __m512i second, int from) {
  return _mm512_permutex2var_epi16(first, pair_order(from), second);
}

inline __attribute__((always_inline)) void put_pairs(__m512i first, __m512i second, std::uint16_t* pairs) {
  _mm512_storeu_si512(pairs, pairs_of(first, second, 0));
  _mm512_storeu_si512(pairs + 2 * kLanes, pairs_of(first, second, kLanes));
}

// 16 vectors of pairs, transposed, to out (16, step).
inline __attribute__((always_inline)) void put_transposed(Vec (&pairs)[kLanes], std::uint16_t* out, std::int64_t step) {
  transpose(pairs);
  ATTN_UNROLL for (int i = 0; i < kLanes; ++i) __builtin_memcpy(out + i * step, &pairs[i], sizeof pairs[i]);
}

// In what follows the low parts go `low` elements behind the high ones; 0: there are none.

template <bool kLow>
inline void pack_row_of(Element element, const void* row, std::int64_t width, std::int64_t low, std::uint16_t* out,
                        std::int64_t row_step) {
  for (std::int64_t c = 0; c < row_step; c += 32) {
    const Parts parts = load_parts<kLow>(element, row, c, width);
    _mm512_storeu_si512(out + c, parts.high);
    if (kLow) _mm512_storeu_si512(out + low + c, parts.low);
  }
}

// out (row_step), a multiple of 32: one row, made up with zeros.
inline void pack_row(Element element, const void* row, std::int64_t width, std::int64_t low, std::uint16_t* out,
                     std::int64_t row_step) {
  (low ? pack_row_of<true> : pack_row_of<false>)(element, row, width, low, out, row_step);
}

template <bool kLow>
inline void pack_columns_of(Element element, const void* const (&rows)[kLanes], std::int64_t width, float factor,
                            std::int64_t low, std::uint16_t* out, std::int64_t depth) {
  for (std::int64_t c = 0; c < depth; c += 32, out += 32 * kColumns) {
    Vec high[kLanes], rest[kLanes];
    ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
      const Parts parts = load_parts<kLow>(element, rows[i], c, width, factor);
      high[i] = reinterpret_cast<Vec>(parts.high), rest[i] = reinterpret_cast<Vec>(parts.low);
    }
    put_transposed(high, out, 2 * kColumns);
    if (kLow) put_transposed(rest, out + low, 2 * kColumns);
  }
}

// out (depth / 2, kColumns, 2), 16 columns of it: rows[i] is column i. `depth` is a multiple of 32.
inline void pack_columns(Element element, const void* const (&rows)[kLanes], std::int64_t width, float factor,
                         std::int64_t low, std::uint16_t* out, std::int64_t depth) {
  (low ? pack_columns_of<true> : pack_columns_of<false>)(element, rows, width, factor, low, out, depth);
}

template <bool kLow>
inline void pack_pair_of(Element element, const void* first, const void* second, std::int64_t at, std::int64_t width,
                         std::int64_t low, std::uint16_t* out) {
  static_assert(kColumns == 32);
  const Parts one = load_parts<kLow>(element, first, at, width), other = load_parts<kLow>(element, second, at, width);
  put_pairs(one.high, other.high, out);
  if (kLow) put_pairs(one.low, other.low, out + low);
}

// out (kColumns, 2): kColumns columns, from `at` on, of two rows of `width`.
inline void pack_pair(Element element, const void* first, const void* second, std::int64_t at, std::int64_t width,
                      std::int64_t low, std::uint16_t* out) {
  (low ? pack_pair_of<true> : pack_pair_of<false>)(element, first, second, at, width, low, out);
}

// 32 columns of 16 pairs of rows, as 16 columns of each vector.
struct Square {
  Vec pairs[2][kLanes];

  __attribute__((always_inline)) void put(int i, __m512i first, __m512i second) {
    pairs[0][i] = reinterpret_cast<Vec>(pairs_of(first, second, 0));
    pairs[1][i] = reinterpret_cast<Vec>(pairs_of(first, second, kLanes));
  }
  __attribute__((always_inline)) void transpose_to(std::uint16_t* out, std::int64_t step, bool both) {
    put_transposed(pairs[0], out, step);
    if (both) put_transposed(pairs[1], out + kLanes * step, step);
  }
};

template <bool kLow>
inline void pack_transposed_of(Element element, const void* const (&rows)[2 * kLanes], std::int64_t width,
                               std::int64_t low, std::uint16_t* out, std::int64_t out_step) {
  for (std::int64_t c = 0; c < width; c += 2 * kLanes, out += 2 * kLanes * out_step) {
    Square high, rest;
    ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
      const Parts first = load_parts<kLow>(element, rows[2 * i], c, width);
      const Parts second = load_parts<kLow>(element, rows[2 * i + 1], c, width);
      high.put(i, first.high, second.high);
      if (kLow) rest.put(i, first.low, second.low);
    }
    high.transpose_to(out, out_step, c + kLanes < width);
    if (kLow) rest.transpose_to(out + low, out_step, c + kLanes < width);
  }
}

// out (width made up to a multiple of 16, out_step): the transpose of 32 rows, at 32 of its columns.
inline void pack_transposed(Element element, const void* const (&rows)[2 * kLanes], std::int64_t width,
                            std::int64_t low, std::uint16_t* out, std::int64_t out_step) {
  (low ? pack_transposed_of<true> : pack_transposed_of<false>)(element, rows, width, low, out, out_step);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
