// Vectors of floats by the compiler's own vector types: one source for every instruction set.
// Included by kernel units only, which include no other header with inline functions: a unit compiled for
// AVX-512 must not lend its copy of a shared inline function to the rest of the program.
#pragma once

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>

namespace attn::kernels::ATTN_UNIT {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;  // SSE2, NEON, or whatever the compiler makes of it
#endif

constexpr float kLog2e = 1.44269504088896340736f;

using Vec = float __attribute__((vector_size(kLanes * 4)));
using VecU = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using VecI = std::int32_t __attribute__((vector_size(kLanes * 4)));

inline __attribute__((always_inline)) Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

inline __attribute__((always_inline)) VecI load(const std::int32_t* p) {
  VecI v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

inline __attribute__((always_inline)) void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }

// x - 0 is x, -0 and NaN included: the compiler makes it a broadcast.
inline __attribute__((always_inline)) Vec splat(float x) { return x - Vec{}; }
inline __attribute__((always_inline)) VecI splat(std::int32_t x) { return x - VecI{}; }

// a · b + c, rounded once where the unit can. Left to a compiler, sums of products that are written alike are fused in
// one place and not in another, or with the other product.
inline __attribute__((always_inline)) Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__AVX2__) && defined(__FMA__)
  return reinterpret_cast<Vec>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#elif defined(__aarch64__)
  return reinterpret_cast<Vec>(
      vfmaq_f32(reinterpret_cast<float32x4_t>(c), reinterpret_cast<float32x4_t>(a), reinterpret_cast<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}

inline __attribute__((always_inline)) Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline __attribute__((always_inline)) VecI max(VecI a, VecI b) { return a > b ? a : b; }
inline __attribute__((always_inline)) VecI min(VecI a, VecI b) { return a < b ? a : b; }

inline __attribute__((always_inline)) bool any(VecI mask) {
  std::int32_t all = 0;
  for (int i = 0; i < kLanes; ++i) all |= mask[i];
  return all != 0;
}

// The sum of the lanes, by halves.
inline __attribute__((always_inline)) float sum_lanes(Vec v) {
  float lane[kLanes];
  store(lane, v);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

// 2^x for x <= 0 (a little above does no harm, up to 126), exact to 1 ulp; zero below 2^-125 (no denormals) and for
// -inf; NaN stays NaN. The polynomial is a minimax fit of degree 5, with 2^0 = 1 exactly: what does not change is
// scaled by 1.
#if defined(__AVX512DQ__)
// x - ⌊x⌋
inline __attribute__((always_inline)) Vec fraction(Vec x) {
  constexpr int kFloor = 0x09;  // to minus infinity, no exception
  return reinterpret_cast<Vec>(_mm512_maskz_reduce_ps(0xffff, reinterpret_cast<__m512>(x), kFloor));
}

// p · 2^⌊x⌋, zero for x below -125.
inline __attribute__((always_inline)) Vec scaled_by_floor(Vec p, Vec x) {
  const auto in = reinterpret_cast<__m512>(x);
  const __mmask16 kept = _mm512_cmp_ps_mask(in, _mm512_set1_ps(-125.f), _CMP_NLT_UQ);
  return reinterpret_cast<Vec>(_mm512_maskz_scalef_ps(kept, reinterpret_cast<__m512>(p), in));
}

// 2^⌊x⌋ · p(x - ⌊x⌋), relative error 8.3e-8.
inline __attribute__((always_inline)) Vec exp2_nonpositive(Vec x) {
  const Vec f = fraction(x);
  Vec p = splat(0.0018671386642381549f);
  p = p * f + splat(0.009017008356750011f);
  p = p * f + splat(0.0557999312877655f);
  p = p * f + splat(0.24016444385051727f);
  p = p * f + splat(0.6931512951850891f);
  return scaled_by_floor(p * f + splat(1.f), x);
}
#else
// On [-1/2, 1/2], relative error 9.4e-8.
inline __attribute__((always_inline)) Vec exp2_nonpositive(Vec x) {
  const Vec floor = splat(-125.f);
  const Vec magic = splat(12582912.f);  // 1.5 · 2^23: adding it rounds to an integer
  const Vec shifted = x + magic;
  const Vec f = x - (shifted - magic);
  Vec p = splat(0.0013269407209008932f);
  p = p * f + splat(0.009671294130384922f);
  p = p * f + splat(0.0555071122944355f);
  p = p * f + splat(0.24022246897220612f);
  p = p * f + splat(0.6931470036506653f);
  p = p * f + splat(1.f);
  const VecU exponent = reinterpret_cast<VecU>(shifted) << 23;
  const Vec scaled = reinterpret_cast<Vec>(reinterpret_cast<VecU>(p) + exponent);
  return x < floor ? splat(0.f) : scaled;  // below it, `scaled` is anything
}
#endif

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
