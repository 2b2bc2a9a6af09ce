// Both products of decode, for Count queries at a time, so that a row that was read serves them all.
#pragma once

#include "kernels/unit/ahead.hpp"
#include "kernels/unit/decode_rows.hpp"
#include "kernels/unit/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Calls f with a compile-time count for each run of four, two or one of `rows` queries.
template <class F>
inline void by_fours(std::int64_t rows, F&& f) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) f.template operator()<4>(r);
  if (r + 2 <= rows) f.template operator()<2>(r), r += 2;
  if (r < rows) f.template operator()<1>(r);
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
                                                         Vec (*sums)[kLanes]) {
  Vec sum[Count][Keys];
  ATTN_UNROLL for (int i = 0; i < Count; ++i) { ATTN_UNROLL for (int j = 0; j < Keys; ++j) sum[i][j] = splat(0.f); }
  std::int64_t b = 0;
  do {  // at least once, which a compiler that keeps sums in registers must know
    const std::int64_t offset = loads.begin(b) * E::kBytes;
    Vec parts[Keys][E::kParts];
    ATTN_UNROLL for (int j = 0; j < Keys; ++j) E::widen(keys[j] + offset, parts[j]);
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

// Rows of a list on their way to L2, for those of a block that are read now; or of none.
class RowsAhead {
 public:
  RowsAhead(const char* const* rows, std::int64_t ahead, std::int64_t lines)
      : rows_(rows), ahead_(ahead), lines_(lines) {}

  // For row j: the one as far ahead in its half, or in that half of the next block.
  __attribute__((always_inline)) void operator()(std::int64_t j) const {
    if (!rows_) return;
    const std::int64_t next = j % kHalfKeys + ahead_ < kHalfKeys ? 0 : kBlockKeys - kHalfKeys;
    prefetch(rows_[j + ahead_ + next], lines_);
  }

 private:
  const char* const* rows_;
  std::int64_t ahead_, lines_;
};

// s[i · kStepKeys + j] = q_i · k_j for Count queries and `count` keys of a block, made up to whole vectors; both halves
// are read in turn.
template <class E, int Count>
__attribute__((noinline)) void score_keys(const float* q, const Loads<E>& loads, const char* const* keys,
                                          std::int64_t count, const RowsAhead& ahead, float* s) {
  constexpr int kAtOnce = kRows < 12 && Count == 4 ? 2 : 4;  // as many sums as registers hold
  for (std::int64_t j = 0; j < kHalfKeys && j < count; j += kLanes) {
    Vec sums[2][Count][kLanes];
    const int halves = j + kHalfKeys < count ? 2 : 1;
    for (std::int64_t n = 0; n < kLanes; n += kAtOnce) {
      for (int half = 0; half < halves; ++half) {
        const std::int64_t at = half * kHalfKeys + j + n;
        for (int i = 0; i < kAtOnce; ++i) ahead(at + i);
        multiply_keys<E, Count, kAtOnce>(q, loads, keys + at, reinterpret_cast<Vec(*)[kLanes]>(&sums[half][0][n]));
      }
    }
    for (int half = 0; half < halves; ++half) {
      for (int i = 0; i < Count; ++i) store(s + i * kStepKeys + half * kHalfKeys + j, sum_each(sums[half][i]));
    }
  }
}

// context_i += Σ_j w[i][j] · v_j, of Width loads from load b on; a value of each half in turn. context (Count, loads,
// parts, kLanes).
template <class E, int Count, int Width>
__attribute__((noinline)) void add_loads(const float* w, const Loads<E>& loads, const char* const* values,
                                         std::int64_t count, const RowsAhead& ahead, std::int64_t b, float* context) {
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
  const auto add = [&](std::int64_t j) __attribute__((always_inline)) {
    ahead(j);
    Vec weight[Count];
    ATTN_UNROLL for (int i = 0; i < Count; ++i) weight[i] = splat(w[i * kStepKeys + j]);
    ATTN_UNROLL for (int n = 0; n < Width; ++n) {
      Vec parts[E::kParts];
      E::widen(values[j] + begin[n], parts);
      ATTN_UNROLL for (int part = 0; part < E::kParts; ++part) {
        ATTN_UNROLL for (int i = 0; i < Count; ++i) sums[i][n][part] = weight[i] * parts[part] + sums[i][n][part];
      }
    }
  };
  for (std::int64_t j = 0; j < kHalfKeys && j < count; ++j) {
    add(j);
    if (j + kHalfKeys < count) add(j + kHalfKeys);
  }
  ATTN_UNROLL for (int n = 0; n < Width; ++n) {
    ATTN_UNROLL for (int i = 0; i < Count; ++i) {
      ATTN_UNROLL for (int part = 0; part < E::kParts; ++part) store(at(i, n, part), sums[i][n][part]);
    }
  }
}

// From load b to the row's end, as many loads at once as registers hold, and then half as many, ….
template <class E, int Count, int Width>
inline void add_row(const float* w, const Loads<E>& loads, const char* const* values, std::int64_t count,
                    RowsAhead ahead, std::int64_t b, float* context) {
  for (; b + Width <= loads.count; b += Width) {
    add_loads<E, Count, Width>(w, loads, values, count, ahead, b, context);
    ahead = {nullptr, 0, 0};
  }
  if constexpr (Width > 1) {
    if (b < loads.count) add_row<E, Count, Width / 2>(w, loads, values, count, ahead, b, context);
  }
}

template <class E, int Count>
inline void add_values(const float* w, const Loads<E>& loads, const char* const* values, std::int64_t count,
                       const RowsAhead& ahead, float* context) {
  constexpr int kSums = kRows >= 12 ? 16 : 8;  // that fit in registers, with what they are made of
  constexpr int kWide = kSums / (Count * E::kParts);
  add_row<E, Count, kWide == 0 ? 1 : kWide>(w, loads, values, count, ahead, 0, context);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
