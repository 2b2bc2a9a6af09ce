// Both products of decode, for Count queries at a time, so that a row that was read serves them all.
#pragma once

#include "kernels/attention/decode_rows.hpp"
#include "kernels/simd/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Calls f with a compile-time count for each run of four of `rows` queries, and for what is left.
template <class F>
inline void by_fours(std::int64_t rows, F&& f) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) f.template operator()<4>(r);
  if (rows - r == 3) f.template operator()<3>(r);
  if (rows - r == 2) f.template operator()<2>(r);
  if (rows - r == 1) f.template operator()<1>(r);
}

// Lane i of the result is the sum of v[i]'s lanes: of four vectors within each part of four lanes, then of whole parts.
inline __attribute__((always_inline)) Vec sum_each(Vec (&v)[kLanes]) {
  Vec four[kLanes / 4];
  ATTN_UNROLL for (int i = 0; i < kLanes / 4; ++i) {
    const Vec a = v[4 * i], b = v[4 * i + 1], c = v[4 * i + 2], d = v[4 * i + 3];
    const Vec ab = ATTN_MOVE(a, b, ATTN_ZIP_LOW) + ATTN_MOVE(a, b, ATTN_ZIP_HIGH);
    const Vec cd = ATTN_MOVE(c, d, ATTN_ZIP_LOW) + ATTN_MOVE(c, d, ATTN_ZIP_HIGH);
    four[i] = ATTN_MOVE(ab, cd, ATTN_JOIN_LOW) + ATTN_MOVE(ab, cd, ATTN_JOIN_HIGH);
  }
#if defined(__AVX512F__)
  const auto halves = [](Vec a, Vec b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, ATTN_PART(0), ATTN_PART(4), ATTN_PART(16), ATTN_PART(20)) +
           __builtin_shufflevector(a, b, ATTN_PART(8), ATTN_PART(12), ATTN_PART(24), ATTN_PART(28));
  };
  const Vec low = halves(four[0], four[1]), high = halves(four[2], four[3]);
  return __builtin_shufflevector(low, high, ATTN_PART(0), ATTN_PART(8), ATTN_PART(16), ATTN_PART(24)) +
         __builtin_shufflevector(low, high, ATTN_PART(4), ATTN_PART(12), ATTN_PART(20), ATTN_PART(28));
#elif defined(__AVX2__)
  return __builtin_shufflevector(four[0], four[1], ATTN_PART(0), ATTN_PART(8)) +
         __builtin_shufflevector(four[0], four[1], ATTN_PART(4), ATTN_PART(12));
#else
  return four[0];
#endif
}

// sums[i][j] = q_i · k_j, lane by lane, for Count queries and Keys keys. q (loads, parts, Count, kLanes).
template <class E, int Count, int Keys>
inline __attribute__((always_inline)) void multiply_keys(const float* q, const Loads<E>& loads, const char* const* keys,
                                                         const char* const* ahead, Vec (*sums)[kLanes]) {
  Vec sum[Count][Keys];
  ATTN_UNROLL for (int i = 0; i < Count; ++i) { ATTN_UNROLL for (int j = 0; j < Keys; ++j) sum[i][j] = splat(0.f); }
  std::int64_t b = 0;
  do {  // at least once, which a compiler that keeps sums in registers must know
    const std::int64_t offset = loads.begin(b) * E::kBytes;
    Vec parts[Keys][E::kParts];
    ATTN_UNROLL for (int j = 0; j < Keys; ++j) {
      prefetch_at(ahead[j], b * E::kSpan * E::kBytes);
      E::widen(keys[j] + offset, parts[j]);
    }
    ATTN_UNROLL for (int part = 0; part < E::kParts; ++part) {
      ATTN_UNROLL for (int i = 0; i < Count; ++i) {
        const Vec left = load(q + (part * Count + i) * kLanes);
        ATTN_UNROLL for (int j = 0; j < Keys; ++j) sum[i][j] = left * parts[j][part] + sum[i][j];
      }
    }
    q += E::kParts * Count * kLanes;
  } while (++b < loads.count);
  ATTN_UNROLL for (int i = 0; i < Count; ++i) { ATTN_UNROLL for (int j = 0; j < Keys; ++j) sums[i][j] = sum[i][j]; }
}

// s[i · kStepKeys + j] = q_i · k_j for Count queries and a block's keys j.
template <class E, int Count>
__attribute__((noinline)) void score_keys(const float* q, const Loads<E>& loads, const Units& block, bool fetch,
                                          float* s) {
  constexpr int kAtOnce = kRows < 12 && Count == 4 ? 2 : 4;  // as many sums as registers hold
  for (std::int64_t j = 0; j < block.count * kUnitKeys; j += kLanes) {
    Vec sums[Count][kLanes];
    for (int n = 0; n < kLanes; n += kAtOnce) {
      const char* ahead[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i) ahead[i] = fetch ? block.ahead(j + n + i) : nullptr;
      multiply_keys<E, Count, kAtOnce>(q, loads, block.rows + j + n, ahead,
                                       reinterpret_cast<Vec(*)[kLanes]>(&sums[0][n]));
    }
    float* out = s + block.place[j / kUnitKeys] + j % kUnitKeys;
    for (int i = 0; i < Count; ++i) store(out + i * kStepKeys, sum_each(sums[i]));
  }
}

// context_i += Σ_j w[i][j] · v_j, of Width loads from load b on, over a block's values. context (Count, loads, parts,
// kLanes).
template <class E, int Count, int Width>
__attribute__((noinline)) void add_loads(const float* w, const Loads<E>& loads, const Units& block, bool fetch,
                                         std::int64_t b, float* context) {
  Vec sums[Count][Width][E::kParts];
  std::int64_t begin[Width];
  const auto at = [&](int i, int n, int part) {
    return context + i * loads.floats() + ((b + n) * E::kParts + part) * kLanes;
  };
  ATTN_UNROLL for (int n = 0; n < Width; ++n) {
    begin[n] = loads.begin(b + n) * E::kBytes;
    ATTN_UNROLL for (int i = 0; i < Count; ++i) {
      ATTN_UNROLL for (int part = 0; part < E::kParts; ++part) sums[i][n][part] = load(at(i, n, part));
    }
  }
  for (std::int64_t unit = 0; unit < block.count; ++unit) {
    const float* const weights = w + block.place[unit];
    for (std::int64_t j = 0; j < block.rows_of(unit); ++j) {
      const char* const value = block.rows[unit * kUnitKeys + j];
      const char* const ahead = fetch ? block.ahead(unit * kUnitKeys + j) : nullptr;
      Vec weight[Count];
      ATTN_UNROLL for (int i = 0; i < Count; ++i) weight[i] = splat(weights[i * kStepKeys + j]);
      ATTN_UNROLL for (int n = 0; n < Width; ++n) {
        Vec parts[E::kParts];
        prefetch_at(ahead, (b + n) * E::kSpan * E::kBytes);
        E::widen(value + begin[n], parts);
        ATTN_UNROLL for (int part = 0; part < E::kParts; ++part) {
          ATTN_UNROLL for (int i = 0; i < Count; ++i) sums[i][n][part] = weight[i] * parts[part] + sums[i][n][part];
        }
      }
    }
  }
  ATTN_UNROLL for (int n = 0; n < Width; ++n) {
    ATTN_UNROLL for (int i = 0; i < Count; ++i) {
      ATTN_UNROLL for (int part = 0; part < E::kParts; ++part) store(at(i, n, part), sums[i][n][part]);
    }
  }
}

// From load b to the row's end, as many loads at once as registers hold, and then half as many, ….
template <class E, int Count, int Width>
inline void add_row(const float* w, const Loads<E>& loads, const Units& block, bool fetch, std::int64_t b,
                    float* context) {
  for (; b + Width <= loads.count; b += Width) add_loads<E, Count, Width>(w, loads, block, fetch, b, context);
  if constexpr (Width > 1) {
    if (b < loads.count) add_row<E, Count, Width / 2>(w, loads, block, fetch, b, context);
  }
}

template <class E, int Count>
inline void add_block(const float* w, const Loads<E>& loads, const Units& block, bool fetch, float* context) {
  constexpr int kSums = kRows >= 12 ? 16 : 8;  // that fit in registers, with what they are made of
  constexpr int kRoom = kSums / (Count * E::kParts), kWide = kRoom >= 4 ? kRoom / 4 * 4 : kRoom == 0 ? 1 : kRoom;
  add_row<E, Count, kWide>(w, loads, block, fetch, 0, context);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
