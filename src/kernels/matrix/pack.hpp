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

inline std::uint16_t* halves(Carver& take, std::int64_t count) {
  return reinterpret_cast<std::uint16_t*>(take((count + 1) / 2));
}

using Bf16s = std::uint16_t __attribute__((vector_size(kLanes * 2)));
using Pairs = std::uint32_t __attribute__((vector_size(kLanes * 4)));

// In vector types where GCC 12's intrinsics warn of their own undefined operands.
inline Pairs zero_extend(__m256i bits) { return __builtin_convertvector(reinterpret_cast<Bf16s>(bits), Pairs); }

inline Vec widen_bf16(__m256i bits) { return reinterpret_cast<Vec>(zero_extend(bits) << 16); }

inline __m256i round_bf16(Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x))); }

// Elements [at, at + 16) of a row of `width` (null: no such row), times a factor, as one part in bf16: the high
// part is x rounded, the low part what that left, rounded.
inline __m256i load_part(Element element, const void* row, std::int64_t at, std::int64_t width, float factor,
                         int part) {
  if (!row || at >= width) return _mm256_setzero_si256();
  if (element == Element::bf16 && part == 0 && factor == 1 && width - at >= 16) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const std::uint16_t*>(row) + at));
  }
  const auto mask = static_cast<__mmask16>(width - at >= 16 ? 0xffff : (1 << (width - at)) - 1);
  Vec x;
  if (element == Element::bf16) {
    const __m256i bits = _mm256_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(row) + at);
    if (factor == 1 && part == 0) return bits;
    x = widen_bf16(bits);
  } else {
    x = reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(mask, static_cast<const float*>(row) + at));
  }
  x *= splat(factor);
  const __m256i high = round_bf16(x);
  return part == 0 ? high : round_bf16(x - widen_bf16(high));
}

// out (row_step): one row, made up with zeros.
inline void pack_row(Element element, const void* row, std::int64_t width, int part, std::uint16_t* out,
                     std::int64_t row_step) {
  for (std::int64_t c = 0; c < row_step; c += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + c), load_part(element, row, c, width, 1, part));
  }
}

// out (depth / 2, kColumns, 2), 16 columns of it: rows[i] is column i. `depth` is a multiple of 32.
inline void pack_columns(Element element, const void* const (&rows)[kLanes], std::int64_t width, float factor, int part,
                         std::uint16_t* out, std::int64_t depth) {
  bool whole = true;  // every row is there
  for (const void* row : rows) whole = whole && row;
  for (std::int64_t c = 0; c < depth; c += 32) {
    Vec pairs[kLanes];
    if (element == Element::bf16 && factor == 1 && part == 0 && whole && c + 32 <= width) {
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
        __builtin_memcpy(&pairs[i], static_cast<const std::uint16_t*>(rows[i]) + c, sizeof pairs[i]);
      }
    } else
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
        const __m256i first = load_part(element, rows[i], c, width, factor, part);
        const __m256i second = load_part(element, rows[i], c + 16, width, factor, part);
        pairs[i] = reinterpret_cast<Vec>(__builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7));
      }
    transpose(pairs);
    ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
      __builtin_memcpy(out + (c / 2 + i) * 2 * kColumns, &pairs[i], sizeof pairs[i]);
    }
  }
}

// out (kColumns, 2): kColumns columns, from `at` on, of two rows of `width`.
inline void pack_pair(Element element, const void* first, const void* second, std::int64_t at, std::int64_t width,
                      int part, std::uint16_t* out) {
  for (std::int64_t c = 0; c < kColumns; c += kLanes) {
    const Pairs pairs = zero_extend(load_part(element, first, at + c, width, 1, part)) |
                        zero_extend(load_part(element, second, at + c, width, 1, part)) << 16;
    __builtin_memcpy(out + 2 * c, &pairs, sizeof pairs);
  }
}

// out (width made up to a multiple of 16, out_step): the transpose of 32 rows, at 32 of its columns.
inline void pack_transposed(Element element, const void* const (&rows)[2 * kLanes], std::int64_t width, int part,
                            std::uint16_t* out, std::int64_t out_step) {
  for (std::int64_t c = 0; c < width; c += kLanes) {
    Vec pairs[kLanes];
    ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
      const Pairs first = zero_extend(load_part(element, rows[2 * i], c, width, 1, part));
      const Pairs second = zero_extend(load_part(element, rows[2 * i + 1], c, width, 1, part));
      pairs[i] = reinterpret_cast<Vec>(first | second << 16);
    }
    transpose(pairs);
    ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
      __builtin_memcpy(out + (c + i) * out_step, &pairs[i], sizeof pairs[i]);
    }
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
