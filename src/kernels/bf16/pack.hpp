// Rows of q, k and v as operands of bf16 pairs. Everything past a row's end or the last row becomes zero.
#pragma once

#include <immintrin.h>

#include "kernels/bf16/multiply.hpp"
#include "kernels/prefetch.hpp"
#include "kernels/simd/elements.hpp"
#include "kernels/simd/transpose.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Returns how many products of parts make a product of two numbers in so many parts.
constexpr int products_of(int parts) { return parts * (parts + 1) / 2; }

// `rows` of the sums of a product to come, on their way to L1: of 32 rows with all calls beside the 32 before, which
// are over `pairs` pairs of depth.
template <int kProducts>
inline auto prefetch_sums(const float* sums, std::int64_t rows, std::int64_t pairs) {
  constexpr std::int64_t kRowBytes = kColumns * sizeof(float);
  PrefetchRanges<1, Cache::l1_to_write> ahead(ceil_div(32 * kRowBytes * 16, pairs * kProducts * kCacheLine));
  ahead.set(0, sums, rows * kRowBytes);
  return ahead;
}

// Parts of packed numbers: how many, and how many elements one lies behind the other.
struct Spread {
  int parts;
  std::int64_t step;
};
constexpr Spread kOnePart{1, 0};

// f(std::integral_constant<int, parts>), without the header.
template <int N>
struct PartCount {
  static constexpr int value = N;
};
template <class F>
inline void with_parts(int parts, const F& f) {
  if constexpr (kMostParts == 1) {
    f(PartCount<1>{});
  } else {
    parts == 1 ? f(PartCount<1>{}) : parts == 2 ? f(PartCount<2>{}) : f(PartCount<3>{});
  }
}

inline std::uint16_t* halves(Workspace& take, std::int64_t count) {
  return reinterpret_cast<std::uint16_t*>(take((count + 1) / 2));
}

using Pairs = std::uint32_t __attribute__((vector_size(kLanes * 4)));

// 32 numbers in bf16, from the high part down: each part is what those before left, rounded.
template <int kParts>
struct Parts {
  __m512i part[kParts];
};

inline __attribute__((always_inline)) __m512i round_bf16(Vec first, Vec second) {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
}

// The nearest of bf16's numbers. Of NaN it may be any: what is left stays NaN.
inline __attribute__((always_inline)) Vec high_part(Vec x) {
  return reinterpret_cast<Vec>((reinterpret_cast<VecU>(x) + 0x8000u) & 0xffff0000u);
}

// Joins the high halves of numbers that are bf16's already, and so need no rounding.
inline __attribute__((always_inline)) __m512i high_halves(Vec first, Vec second) {
  using Words = std::uint32_t __attribute__((vector_size(64)));
  const Words order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return _mm512_permutex2var_epi16(reinterpret_cast<__m512i>(first),
                                   reinterpret_cast<__m512i>(order * 0x40004 + 0x30001),
                                   reinterpret_cast<__m512i>(second));
}

template <int kParts>
inline __attribute__((always_inline)) Parts<kParts> split(Vec first, Vec second) {
  Parts<kParts> parts;
  ATTN_UNROLL for (int i = 0; i + 1 < kParts; ++i) {
    const Vec high_first = high_part(first), high_second = high_part(second);
    parts.part[i] = high_halves(high_first, high_second);
    first -= high_first, second -= high_second;
  }
  parts.part[kParts - 1] = round_bf16(first, second);
  return parts;
}

// Numbers that are bf16 already: what their low parts would be is zero.
template <int kParts>
inline __attribute__((always_inline)) Parts<kParts> only_high(__m512i high) {
  Parts<kParts> parts{{high}};
  ATTN_UNROLL for (int i = 1; i < kParts; ++i) parts.part[i] = _mm512_setzero_si512();
  return parts;
}

// Elements [at, at + 32) of a row of `width` (null: no such row), times a factor.
template <int kParts>
inline __attribute__((always_inline)) Parts<kParts> load_parts(Element element, const void* row, std::int64_t at,
                                                               std::int64_t width, float factor = 1) {
  if (!row || at >= width) return only_high<kParts>(_mm512_setzero_si512());
  const std::uint32_t mask = width - at >= 32 ? 0xffffffffu : (1u << (width - at)) - 1;
  if (element == Element::f32) {
    const float* from = static_cast<const float*>(row) + at;
    const auto first = reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from));
    const auto second = reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + kLanes));
    return split<kParts>(first * splat(factor), second * splat(factor));
  }
  if (element == Element::i8) {  // whole numbers, which bf16 holds
    char bytes[64];
    _mm512_storeu_si512(bytes, _mm512_maskz_loadu_epi8(mask, static_cast<const char*>(row) + at));
    const auto numbers = [](const char* from) {
      const __m512i whole = _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
      return reinterpret_cast<Vec>(_mm512_maskz_cvtepi32_ps(0xffff, whole));
    };
    return only_high<kParts>(high_halves(numbers(bytes), numbers(bytes + kLanes)));
  }
  const __m512i bits = _mm512_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(row) + at);
  if (factor == 1) return only_high<kParts>(bits);
  std::uint16_t lanes[2 * kLanes];
  _mm512_storeu_si512(lanes, bits);
  return split<kParts>(from_bf16(half_lanes(lanes)) * splat(factor),
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

template <int kParts>
inline void pack_row_of(Element element, const void* row, std::int64_t width, std::int64_t step, std::uint16_t* out,
                        std::int64_t row_step) {
  for (std::int64_t c = 0; c < row_step; c += 32) {
    const auto parts = load_parts<kParts>(element, row, c, width);
    ATTN_UNROLL for (int i = 0; i < kParts; ++i) _mm512_storeu_si512(out + i * step + c, parts.part[i]);
  }
}

// out (row_step), a multiple of 32: one row, made up with zeros.
inline void pack_row(Element element, const void* row, std::int64_t width, const Spread& spread, std::uint16_t* out,
                     std::int64_t row_step) {
  with_parts(spread.parts, [&](auto n) { pack_row_of<n.value>(element, row, width, spread.step, out, row_step); });
}

template <int kParts>
inline void pack_columns_of(Element element, const void* const (&rows)[kLanes], std::int64_t width, float factor,
                            std::int64_t step, std::uint16_t* out, std::int64_t depth) {
  for (std::int64_t c = 0; c < depth; c += 32, out += 32 * kColumns) {
    Vec pairs[kParts][kLanes];
    ATTN_UNROLL for (int j = 0; j < kLanes; ++j) {
      const auto parts = load_parts<kParts>(element, rows[j], c, width, factor);
      ATTN_UNROLL for (int i = 0; i < kParts; ++i) pairs[i][j] = reinterpret_cast<Vec>(parts.part[i]);
    }
    ATTN_UNROLL for (int i = 0; i < kParts; ++i) put_transposed(pairs[i], out + i * step, 2 * kColumns);
  }
}

// out (depth / 2, kColumns, 2), 16 columns of it: rows[i] is column i. `depth` is a multiple of 32.
inline void pack_columns(Element element, const void* const (&rows)[kLanes], std::int64_t width, float factor,
                         const Spread& spread, std::uint16_t* out, std::int64_t depth) {
  with_parts(spread.parts,
             [&](auto n) { pack_columns_of<n.value>(element, rows, width, factor, spread.step, out, depth); });
}

template <int kParts>
inline void pack_pair_of(Element element, const void* first, const void* second, std::int64_t at, std::int64_t width,
                         std::int64_t step, std::uint16_t* out) {
  static_assert(kColumns == 32);
  const auto one = load_parts<kParts>(element, first, at, width),
             other = load_parts<kParts>(element, second, at, width);
  ATTN_UNROLL for (int i = 0; i < kParts; ++i) put_pairs(one.part[i], other.part[i], out + i * step);
}

// out (kColumns, 2): kColumns columns, from `at` on, of two rows of `width`.
inline void pack_pair(Element element, const void* first, const void* second, std::int64_t at, std::int64_t width,
                      const Spread& spread, std::uint16_t* out) {
  with_parts(spread.parts, [&](auto n) { pack_pair_of<n.value>(element, first, second, at, width, spread.step, out); });
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

template <int kParts>
inline void pack_transposed_of(Element element, const void* const (&rows)[2 * kLanes], std::int64_t width,
                               std::int64_t step, std::uint16_t* out, std::int64_t out_step) {
  for (std::int64_t c = 0; c < width; c += 2 * kLanes, out += 2 * kLanes * out_step) {
    Square squares[kParts];
    ATTN_UNROLL for (int j = 0; j < kLanes; ++j) {
      const auto first = load_parts<kParts>(element, rows[2 * j], c, width);
      const auto second = load_parts<kParts>(element, rows[2 * j + 1], c, width);
      ATTN_UNROLL for (int i = 0; i < kParts; ++i) squares[i].put(j, first.part[i], second.part[i]);
    }
    ATTN_UNROLL for (int i = 0; i < kParts; ++i) {
      squares[i].transpose_to(out + i * step, out_step, c + kLanes < width);
    }
  }
}

// out (width made up to a multiple of 16, out_step): the transpose of 32 rows, at 32 of its columns.
inline void pack_transposed(Element element, const void* const (&rows)[2 * kLanes], std::int64_t width,
                            const Spread& spread, std::uint16_t* out, std::int64_t out_step) {
  with_parts(spread.parts,
             [&](auto n) { pack_transposed_of<n.value>(element, rows, width, spread.step, out, out_step); });
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
