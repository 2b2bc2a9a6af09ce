// Decode of an int8 cache on AMX's products of bytes (TDPBSSD). Queries and weights become integers of 30 bits, each row
// by a power of two of its own, in four signed bytes: their products with keys and values are exact.
#pragma once

#include <immintrin.h>

#include "kernels/amx/multiply.hpp"
#include "kernels/attention/decode.hpp"
#include "kernels/simd/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kTile = 1024;      // bytes: 16 rows of 64
constexpr std::int64_t kTileQueries = 4;  // queries of a tile, four rows of digits each

// Sums (16, 16) += A (16, 64) · B (16, 16, 4), of signed bytes.
#if defined(ATTN_AMX_EMULATED)
template <int Sum, int A, int B>
inline void multiply_bytes() {
  auto& tile = configured().tile;
  const auto byte = [](std::uint32_t four, int i) { return static_cast<std::int8_t>(four >> 8 * i); };
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 16; ++j) {
        for (int n = 0; n < 4; ++n) {
          tile[Sum][i][j] += static_cast<std::uint32_t>(byte(tile[A][i][k], n) * byte(tile[B][k][j], n));
        }
      }
    }
  }
}
#else
template <int Sum, int A, int B>
inline void multiply_bytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(A), "i"(B));
}
#endif

inline __m512 as_m512(Vec v) { return reinterpret_cast<__m512>(v); }
inline Vec scaled(Vec v, float exponent) {
  return reinterpret_cast<Vec>(_mm512_maskz_scalef_ps(0xffff, as_m512(v), _mm512_set1_ps(exponent)));
}

// The exponent of the unit in which all of x are below 2^30 - 2^23; NaN if one is not finite, or near float32's end. In
// whole vectors.
inline float unit_exponent(const float* x, std::int64_t count) {
  VecI most = splat(std::int32_t{0x00800000});
  for (std::int64_t c = 0; c < count; c += kLanes) most = max(most, reinterpret_cast<VecI>(load(x + c)) & 0x7fffffff);
  std::int32_t largest = 0;
  for (int i = 0; i < kLanes; ++i) largest = most[i] > largest ? most[i] : largest;
  const auto exponent = static_cast<std::int32_t>((static_cast<std::uint32_t>(largest) + 0x20000u) >> 23);
  return exponent >= 255 ? __builtin_nanf("") : static_cast<float>(exponent - 127 - 29);
}

// A vector as integers of `exponent`: byte 4 p + i of part t is digit p of lane 4 t + i, the lowest first.
inline __m512i to_digits(Vec v, float exponent) {
  const __m512i balance = _mm512_set1_epi32(0x00808080);  // bytes from 0 to 255 less 128
  const __m512i by_digit =
      _mm512_maskz_broadcast_i32x4(0xffff, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i whole = _mm512_maskz_cvtps_epi32(0xffff, as_m512(scaled(v, -exponent)));
  return _mm512_shuffle_epi8(_mm512_xor_si512(_mm512_add_epi32(whole, balance), balance), by_digit);
}

// Part i of v to `to` + i · step.
inline void store_parts(char* to, std::int64_t step, __m512i v) {
  ATTN_UNROLL for (int i = 0; i < 4; ++i) __builtin_memcpy(to + i * step, reinterpret_cast<char*>(&v) + 16 * i, 16);
}

inline Vec from_digits(Vec low, Vec middle, Vec high, Vec highest) {
  const Vec base = splat(256.f);
  return ((highest * base + high) * base + middle) * base + low;
}

// 64 bytes of a row from `at` on where they are held.
inline __attribute__((always_inline)) __m512i row_bytes(const char* row, std::int64_t at, __mmask64 held) {
  return _mm512_maskz_loadu_epi8(held, row + at);
}

inline __mmask64 held(std::int64_t left) { return left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1; }

// A unit's keys as tiles (width / 64, 16, 64): their rows may lie in several pages. With each line one of the next
// block is fetched.
inline void copy_keys(const Units& block, std::int64_t unit, std::int64_t width, char* tiles) {
  const char* const* rows = block.rows + unit * kUnitKeys;
  for (std::int64_t c = 0; c < width; c += 64, tiles += kTile) {
    const __mmask64 mask = held(width - c);
    ATTN_UNROLL for (int j = 0; j < kUnitKeys; ++j) {
      prefetch_at(block.ahead(unit * kUnitKeys + j), c);
      _mm512_store_si512(tiles + j * 64, row_bytes(rows[j], c, mask));
    }
  }
}

// Values 4 t … 4 t + 3 of a block to row t of tiles (width / 64, 16, 4, 64), four bytes of a column together: lane
// 4 p + i of tile n is column 16 p + 4 n + i.
inline void turn_values(const Units& block, std::int64_t t, std::int64_t width, char* tiles) {
  for (std::int64_t c = 0; c < width; c += 64) {
    const __mmask64 mask = held(width - c);
    __m512i v[4];
    ATTN_UNROLL for (int j = 0; j < 4; ++j) {
      prefetch_at(block.ahead(4 * t + j), c);
      v[j] = row_bytes(block.rows[4 * t + j], c, mask);
    }
    const __m512i low01 = _mm512_unpacklo_epi8(v[0], v[1]), high01 = _mm512_unpackhi_epi8(v[0], v[1]);
    const __m512i low23 = _mm512_unpacklo_epi8(v[2], v[3]), high23 = _mm512_unpackhi_epi8(v[2], v[3]);
    char* const out = tiles + c / 64 * 4 * kTile + t * 256;
    _mm512_store_si512(out, _mm512_unpacklo_epi16(low01, low23));
    _mm512_store_si512(out + 64, _mm512_unpackhi_epi16(low01, low23));
    _mm512_store_si512(out + 128, _mm512_unpacklo_epi16(high01, high23));
    _mm512_store_si512(out + 192, _mm512_unpackhi_epi16(high01, high23));
  }
}

// Two parts of each.
#define ATTN_FOUR_PARTS(a, b, p, q) \
  __builtin_shufflevector(a, b, ATTN_PART(p), ATTN_PART(q), ATTN_PART(16 + p), ATTN_PART(16 + q))

// Sums (16 keys, 4 queries, 4) of digits: scores[q] of 16 keys.
inline __attribute__((always_inline)) void add_digits(const std::int32_t* sums, Vec (&scores)[4]) {
  Vec four[4];
  Vec weight;
  for (int i = 0; i < kLanes; ++i) weight[i] = static_cast<float>(1 << 8 * (i % 4));
  ATTN_UNROLL for (int i = 0; i < 4; ++i) {
    Vec key[4];
    ATTN_UNROLL for (int n = 0; n < 4; ++n) {
      key[n] = __builtin_convertvector(load(sums + (4 * i + n) * kLanes), Vec) * weight;
    }
    const Vec ab = ATTN_MOVE(key[0], key[1], ATTN_ZIP_LOW) + ATTN_MOVE(key[0], key[1], ATTN_ZIP_HIGH);
    const Vec cd = ATTN_MOVE(key[2], key[3], ATTN_ZIP_LOW) + ATTN_MOVE(key[2], key[3], ATTN_ZIP_HIGH);
    four[i] = ATTN_MOVE(ab, cd, ATTN_JOIN_LOW) + ATTN_MOVE(ab, cd, ATTN_JOIN_HIGH);
  }
  const Vec low01 = ATTN_FOUR_PARTS(four[0], four[1], 0, 4), high01 = ATTN_FOUR_PARTS(four[0], four[1], 8, 12);
  const Vec low23 = ATTN_FOUR_PARTS(four[2], four[3], 0, 4), high23 = ATTN_FOUR_PARTS(four[2], four[3], 8, 12);
  scores[0] = ATTN_FOUR_PARTS(low01, low23, 0, 8), scores[1] = ATTN_FOUR_PARTS(low01, low23, 4, 12);
  scores[2] = ATTN_FOUR_PARTS(high01, high23, 0, 8), scores[3] = ATTN_FOUR_PARTS(high01, high23, 4, 12);
}

class Int8Decode {
 public:
  static constexpr bool kScaled = true;

  Int8Decode(const Problem& p, Workspace& take)
      : rows_(rows_per_key_head(p)), tiles_(ceil_div(rows_, kTileQueries)), d_(p.d), dv_(p.dv) {
    const auto bytes = [&](std::int64_t n) { return reinterpret_cast<char*>(take(n / 4)); };
    exponents_ = take(2 * rows_);
    queries_ = bytes(tiles_ * spans(d_) * kTile);
    keys_ = bytes(spans(d_) * kTile);
    scores_ = bytes(2 * tiles_ * kTile);
    weights_ = bytes(tiles_ * kStepKeys / 64 * kTile);
    values_ = bytes(spans(dv_) * 4 * kTile);
    sums_ = bytes(tiles_ * spans(dv_) * 4 * kTile);
    contexts_ = take(rows_ * spans(dv_) * 64);
  }

  template <class Query>
  void start(Query&& query) {
    for (std::int64_t c = 0; c < rows_ * spans(dv_) * 64; c += kLanes) store(contexts_ + c, splat(0.f));
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* line = query(r);
      for (std::int64_t c = d_; c < spans(d_) * 64; ++c) line[c] = 0;
      exponents_[r] = unit_exponent(line, spans(d_) * 64);
      char* out = queries_ + r / kTileQueries * spans(d_) * kTile + r % kTileQueries * 16;
      for (std::int64_t c = 0; c < spans(d_) * 64; c += kLanes) {
        store_parts(out + c * 16, 64, to_digits(load(line + c), exponents_[r]));
      }
    }
  }

  // A unit is copied and multiplied while the one before it becomes scores: memory is asked evenly.
  void scores(const Units& keys, float* s) {
    for (std::int64_t u = 0; u <= keys.count; ++u) {
      if (u < keys.count) {
        copy_keys(keys.block(u / kStreams * kStreams), u % kStreams, d_, keys_);
        for (std::int64_t tile = 0; tile < tiles_; ++tile) multiply_keys(tile, sums_of(u, tile));
      }
      for (std::int64_t r = 0; u > 0 && r < rows_; r += kTileQueries) {
        store_scores(sums_of(u - 1, r / kTileQueries), r, s + r * kStepKeys + keys.place[u - 1]);
      }
    }
  }

  void add_values(const float* w, const Units& values) {
    for (std::int64_t r = 0; r < rows_; ++r) set_weights(r, w + r * kStepKeys, values);
    for (std::int64_t u = 0; u < values.count; u += kStreams) {
      const Units block = values.block(u);
      for (std::int64_t t = 0; t < block.count * kUnitKeys / 4; ++t) turn_values(block, t, dv_, values_);
      for (std::int64_t tile = 0; tile < tiles_; ++tile) {
        multiply_values(weights_ + (tile * kStepKeys / 64 + u / kStreams) * kTile, u == 0,
                        sums_ + tile * spans(dv_) * 4 * kTile);
      }
    }
    for (std::int64_t r = 0; r < rows_; ++r) add_sums(r);
  }

  void shrink(std::int64_t r, float factor) {
    for (std::int64_t c = 0; c < spans(dv_) * 64; c += kLanes)
      store(context(r) + c, load(context(r) + c) * splat(factor));
  }

  void finish(std::int64_t r, float* out) const {
    for (std::int64_t c = 0; c < dv_; c += 4) {
      const std::int64_t lane = c / 64 * 64 + c / 4 % 4 * 16 + c / 16 % 4 * 4;
      __builtin_memcpy(out + c, context(r) + lane, 16);
    }
  }

 private:
  static std::int64_t spans(std::int64_t n) { return ceil_div(n, 64); }
  float* context(std::int64_t r) const { return contexts_ + r * spans(dv_) * 64; }

  // The sums of a unit's keys and a tile of queries, (16 keys, 4 queries, 4); those of a missing key or query are junk.
  std::int32_t* sums_of(std::int64_t unit, std::int64_t tile) const {
    return reinterpret_cast<std::int32_t*>(scores_ + (unit % 2 * tiles_ + tile) * kTile);
  }

  void multiply_keys(std::int64_t tile, std::int32_t* sums) const {
    const char* const queries = queries_ + tile * spans(d_) * kTile;
    tile_zero<0>();
    for (std::int64_t i = 0; i < spans(d_); ++i) {
      tile_load<4>(keys_ + i * kTile, 64), tile_load<5>(queries + i * kTile, 64);
      multiply_bytes<0, 4, 5>();
    }
    tile_store<0>(sums, 64);
  }

  // Stores the scores of queries r to r + 3.
  void store_scores(const std::int32_t* sums, std::int64_t r, float* s) const {
    Vec of_query[kTileQueries];
    add_digits(sums, of_query);
    for (std::int64_t i = 0; i < kTileQueries && r + i < rows_; ++i) {
      store(s + i * kStepKeys, scaled(of_query[i], exponents_[r + i]));
    }
  }

  // Weights of query r in the order of the values: tiles of (16, 64 keys), rows as in queries.
  void set_weights(std::int64_t r, const float* w, const Units& values) {
    const float exponent = exponents_[rows_ + r] = unit_exponent(w, pad_lanes(values.keys));
    const __m512i by_row = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    char* out = weights_ + r / kTileQueries * kStepKeys / 64 * kTile + r % kTileQueries * 4 * 64;
    for (std::int64_t u = 0; u < round_up(values.count, kStreams); ++u) {
      const Vec run = u < values.count ? load(w + values.place[u]) : splat(0.f);
      store_parts(out + u / 4 * kTile + u % 4 * 16, 64,
                  _mm512_maskz_permutexvar_epi32(0xffff, by_row, to_digits(run, exponent)));
    }
  }

  void multiply_values(const char* weights, bool first, char* sums) const {
    tile_load<4>(weights, 64);
    for (std::int64_t i = 0; i < spans(dv_); ++i) {
      const char* const columns = values_ + i * 4 * kTile;
      char* const out = sums + i * 4 * kTile;
      const auto add = [&]<int Tile>() {
        if (first) {
          tile_zero<Tile>();
        } else {
          tile_load<Tile>(out + Tile * kTile, 64);
        }
        tile_load<5 + Tile % 2>(columns + Tile * 64, 256);
        multiply_bytes<Tile, 4, 5 + Tile % 2>();
      };
      add.template operator()<0>(), add.template operator()<1>();
      add.template operator()<2>(), add.template operator()<3>();
      tile_store<0>(out, 64), tile_store<1>(out + kTile, 64);
      tile_store<2>(out + 2 * kTile, 64), tile_store<3>(out + 3 * kTile, 64);
    }
  }

  // A step's sums of query r, in units of its weights, to its context.
  void add_sums(std::int64_t r) {
    const char* sums = sums_ + r / kTileQueries * spans(dv_) * 4 * kTile + r % kTileQueries * 4 * 64;
    const auto digit = [](const char* row) {
      return __builtin_convertvector(load(reinterpret_cast<const std::int32_t*>(row)), Vec);
    };
    for (std::int64_t i = 0; i < spans(dv_) * 4; ++i, sums += kTile) {
      float* to = context(r) + i * kLanes;
      const Vec sum = from_digits(digit(sums), digit(sums + 64), digit(sums + 128), digit(sums + 192));
      store(to, load(to) + scaled(sum, exponents_[rows_ + r]));
    }
  }

  std::int64_t rows_, tiles_, d_, dv_;
  float *exponents_, *contexts_;  // exponents of queries, then of weights
  char *queries_, *keys_, *scores_, *weights_, *values_, *sums_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
