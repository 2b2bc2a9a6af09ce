// Words of four bytes, and their products: what an instruction set has for quantised matrices.
#pragma once

#include "kernels/simd/elements.hpp"
#include "kernels/simd/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline __attribute__((always_inline)) VecU load_words(const std::uint8_t* p) {
  VecU v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// Each lane's low byte.
inline __attribute__((always_inline)) void store_bytes(std::int8_t* p, VecI v) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(v));
  __builtin_memcpy(p, &bytes, sizeof bytes);
#else
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::int8_t>(v[i]);
#endif
}

template <int... kLane>
struct LaneList {
  template <int kDistance>
  static inline __attribute__((always_inline)) VecI swapped(VecI v) {
    return __builtin_shufflevector(v, v, (kLane ^ kDistance)...);
  }
};
template <int kCount, int... kLane>
struct AllLanes : AllLanes<kCount - 1, kCount - 1, kLane...> {};
template <int... kLane>
struct AllLanes<0, kLane...> : LaneList<kLane...> {};

// f of all lanes, in each of them.
template <int kDistance = kLanes / 2, class F>
inline __attribute__((always_inline)) VecI over_lanes(VecI v, const F& f) {
  if constexpr (kDistance > 0) {
    return over_lanes<kDistance / 2>(f(v, AllLanes<kLanes>::swapped<kDistance>(v)), f);
  }
  return v;
}

// 16 bytes, for look_up().
inline __attribute__((always_inline)) VecU all_words(const std::uint8_t (&levels)[16]) {
  std::uint8_t all[kLanes * 4];
  for (int i = 0; i < kLanes * 4; ++i) all[i] = levels[i % 16];
  return load_words(all);
}

// Each byte of `code`, below 16, becomes its level.
inline __attribute__((always_inline)) VecU look_up(VecU levels, VecU code) {
#if defined(__AVX512BW__)
  return reinterpret_cast<VecU>(
      _mm512_shuffle_epi8(reinterpret_cast<__m512i>(levels), reinterpret_cast<__m512i>(code)));
#elif defined(__AVX2__)
  return reinterpret_cast<VecU>(
      _mm256_shuffle_epi8(reinterpret_cast<__m256i>(levels), reinterpret_cast<__m256i>(code)));
#else
  std::uint8_t table[kLanes * 4], bytes[kLanes * 4];
  __builtin_memcpy(table, &levels, sizeof table);
  __builtin_memcpy(bytes, &code, sizeof bytes);
  for (std::uint8_t& byte : bytes) byte = table[byte];
  return load_words(bytes);
#endif
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
constexpr bool kDots = true, kPairs = false;  // an instruction adds four products of bytes
#elif defined(__AVX2__)
constexpr bool kDots = false, kPairs = true;  // products of bytes are added in pairs, in 16 bits
#else
constexpr bool kDots = false, kPairs = false;
#endif

// sum + Σ of a word's four codes, from 0 to kMost, by four bytes from -127 to 127, the same ones for all words: exact.
// With kPairs codes are at most 127, and `sum` has two numbers in a lane, of 16 bits each.
template <int kMost>
inline __attribute__((always_inline)) VecI add_products(VecI sum, VecU code, const std::int8_t* bytes) {
  std::int32_t four;
  __builtin_memcpy(&four, bytes, sizeof four);
#if defined(__AVX512VNNI__)
  return reinterpret_cast<VecI>(
      _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(code), _mm512_set1_epi32(four)));
#elif defined(__AVXVNNI__)
  return reinterpret_cast<VecI>(_mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sum), reinterpret_cast<__m256i>(code),
                                                        _mm256_set1_epi32(four)));
#elif defined(__AVX512BW__)
  const __m512i pairs = _mm512_maddubs_epi16(reinterpret_cast<__m512i>(code), _mm512_set1_epi32(four));
  return reinterpret_cast<VecI>(_mm512_add_epi16(reinterpret_cast<__m512i>(sum), pairs));
#elif defined(__AVX2__)
  const __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(code), _mm256_set1_epi32(four));
  return reinterpret_cast<VecI>(_mm256_add_epi16(reinterpret_cast<__m256i>(sum), pairs));
#elif defined(__ARM_FEATURE_DOTPROD)
  // Its bytes have signs on both sides: a code's upper bit is -128, and is subtracted.
  const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
  const auto dot = [&](VecI to, VecU some) __attribute__((always_inline)) {
    return reinterpret_cast<VecI>(vdotq_s32(reinterpret_cast<int32x4_t>(to), reinterpret_cast<int8x16_t>(some), x));
  };
  if constexpr (kMost < 128) return dot(sum, code);
  return dot(sum, code & 0x7f7f7f7fu) - dot(VecI{}, code & 0x80808080u);
#else
  for (int byte = 0; byte < 4; ++byte) {
    sum += reinterpret_cast<VecI>(code >> 8 * byte & 255u) * splat(static_cast<std::int32_t>(bytes[byte]));
  }
  return sum;
#endif
}

// The sums of lanes of two numbers.
inline __attribute__((always_inline)) VecI pairs_summed(VecI pairs) {
#if defined(__AVX512BW__)
  return reinterpret_cast<VecI>(_mm512_madd_epi16(reinterpret_cast<__m512i>(pairs), _mm512_set1_epi16(1)));
#elif defined(__AVX2__)
  return reinterpret_cast<VecI>(_mm256_madd_epi16(reinterpret_cast<__m256i>(pairs), _mm256_set1_epi16(1)));
#else
  return pairs;
#endif
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
