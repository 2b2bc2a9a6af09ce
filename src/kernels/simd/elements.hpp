// 16-bit floats to float32 and back, a row at a time.
#pragma once

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "kernels/problem.hpp"
#include "kernels/simd/vector.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline float bits_to_float(std::uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}

inline std::uint32_t float_to_bits(float f) {
  std::uint32_t u;
  __builtin_memcpy(&u, &f, sizeof u);
  return u;
}

inline float from_bf16(std::uint16_t h) { return bits_to_float(static_cast<std::uint32_t>(h) << 16); }

inline float from_f16(std::uint16_t h) {
  // The exponent's bias differs by 112; multiplying by 2^112 also makes subnormals normal.
  const std::uint32_t magnitude = static_cast<std::uint32_t>(h & 0x7fffu) << 13;
  const float value = bits_to_float(magnitude) * 0x1p112f;
  const std::uint32_t bits = (h & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : float_to_bits(value);
  return bits_to_float(bits | static_cast<std::uint32_t>(h & 0x8000u) << 16);
}

// The same, in every lane. g++ 12 widens long vectors by halves, where the processor has one instruction.
inline __attribute__((always_inline)) VecU half_lanes(const std::uint16_t* p) {
#if defined(__AVX512F__) && !defined(__clang__)
  short __attribute__((vector_size(kLanes * 2))) v;
  __builtin_memcpy(&v, p, sizeof v);
  return reinterpret_cast<VecU>(__builtin_ia32_pmovzxwd512_mask(v, VecI{}, 0xffff));
#else
  std::uint16_t __attribute__((vector_size(kLanes * 2))) v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, VecU);
#endif
}

inline __attribute__((always_inline)) Vec byte_lanes(const std::int8_t* p) {
#if defined(__AVX512F__) && !defined(__clang__)
  char __attribute__((vector_size(kLanes))) v;
  __builtin_memcpy(&v, p, kLanes);
  const VecI wide = __builtin_ia32_pmovsxbd512_mask(v, VecI{}, static_cast<short>(0xffff));
#elif defined(__AVX2__) && !defined(__clang__)
  long long eight;  // in a register: half a vector that is stored and loaded again would wait for the store
  __builtin_memcpy(&eight, p, sizeof eight);
  const long long __attribute__((vector_size(16))) v = {eight, 0};
  const VecI wide = __builtin_ia32_pmovsxbd256(reinterpret_cast<char __attribute__((vector_size(16)))>(v));
#else
  std::int8_t __attribute__((vector_size(kLanes))) v;
  __builtin_memcpy(&v, p, kLanes);
  const VecI wide = __builtin_convertvector(v, VecI);
#endif
  return __builtin_convertvector(wide, Vec);
}

inline __attribute__((always_inline)) Vec from_bf16(VecU h) { return reinterpret_cast<Vec>(h << 16); }

inline __attribute__((always_inline)) Vec from_f16(VecU h) {
  const VecU magnitude = (h & 0x7fffu) << 13, infinity = VecU{} + 0x7f800000u;
  const VecU finite = reinterpret_cast<VecU>(reinterpret_cast<Vec>(magnitude) * splat(0x1p112f));
  const VecU bits = (h & 0x7c00u) == (VecU{} + 0x7c00u) ? magnitude | infinity : finite;
  return reinterpret_cast<Vec>(bits | (h & 0x8000u) << 16);
}

// kLanes float16s that lie side by side.
inline __attribute__((always_inline)) Vec halves_at(const void* p) {
#if defined(__AVX512F__)
  __m256i half;
  __builtin_memcpy(&half, p, sizeof half);
  return reinterpret_cast<Vec>(_mm512_maskz_cvtph_ps(0xffff, half));
#elif defined(__F16C__)
  __m128i half;
  __builtin_memcpy(&half, p, sizeof half);
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(half));
#else
  std::uint16_t half[kLanes];
  __builtin_memcpy(half, p, sizeof half);
  return from_f16(half_lanes(half));
#endif
}

// Round to nearest even; NaN stays NaN.
inline std::uint16_t to_bf16(float f) {
  const std::uint32_t u = float_to_bits(f);
  const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
}

inline __attribute__((always_inline)) VecU to_bf16(Vec v) {
  const VecU u = reinterpret_cast<VecU>(v);
  const VecU rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (u & 0x7fffffffu) > (VecU{} + 0x7f800000u) ? (u >> 16) | 0x40u : rounded;
}

// A vector of them at `out`, subnormal or not.
inline __attribute__((always_inline)) void store_bf16(std::uint16_t* out, Vec v) {
#if defined(__AVX512BF16__)
  const __m256bh half = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
#else
  using Half = std::uint16_t __attribute__((vector_size(kLanes * 2)));
  const Half half = __builtin_convertvector(to_bf16(v), Half);
#endif
  __builtin_memcpy(out, &half, sizeof half);
}

inline std::uint16_t to_f16(float f) {
  const std::uint32_t u = float_to_bits(f), magnitude = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
  // Adding 0.5 leaves a subnormal's 2^-24 units, rounded, in the low bits.
  const std::uint32_t small = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  std::uint32_t h = magnitude < 0x38800000u ? small : normal;
  if (magnitude >= 0x477ff000u) h = 0x7c00u;
  if (magnitude > 0x7f800000u) h = 0x7e00u;
  return static_cast<std::uint16_t>(sign | h);
}

inline std::int64_t element_bytes(Element element) {
  return element == Element::f32 ? 4 : element == Element::i8 ? 1 : 2;
}

inline const void* element_at(const void* data, Element element, std::int64_t at) {
  return static_cast<const char*>(data) + at * element_bytes(element);
}

// A vector of elements at `source` as float32.
inline __attribute__((always_inline)) Vec lanes_at(Element element, const void* source) {
  switch (element) {
    case Element::bf16:
      return from_bf16(half_lanes(static_cast<const std::uint16_t*>(source)));
    case Element::f16:
      return halves_at(source);
    case Element::i8:
      return byte_lanes(static_cast<const std::int8_t*>(source));
    case Element::f32:
      break;
  }
  return load(static_cast<const float*>(source));
}

// One.
inline float number_at(Element element, const void* source) {
  switch (element) {
    case Element::bf16:
      return from_bf16(*static_cast<const std::uint16_t*>(source));
    case Element::f16:
      return from_f16(*static_cast<const std::uint16_t*>(source));
    case Element::i8:
      return *static_cast<const std::int8_t*>(source);
    case Element::f32:
      break;
  }
  return *static_cast<const float*>(source);
}

// n elements of `element` at `source` as float32.
inline void widen(Element element, const void* source, float* out, std::int64_t n) {
  if (element == Element::f32) {
    __builtin_memcpy(out, source, static_cast<std::size_t>(n) * 4);
    return;
  }
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, lanes_at(element, element_at(source, element, i)));
  for (; i < n; ++i) out[i] = number_at(element, element_at(source, element, i));
}

inline void narrow(Element element, const float* source, void* out, std::int64_t n) {
  if (element == Element::f32) {
    __builtin_memcpy(out, source, static_cast<std::size_t>(n) * 4);
    return;
  }
  auto* half = static_cast<std::uint16_t*>(out);
  if (element == Element::bf16) {
    for (std::int64_t i = 0; i < n; ++i) half[i] = to_bf16(source[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) half[i] = to_f16(source[i]);
  }
}

// From here on a float is stored as infinity.
inline float end_of_range(Element element) {
  if (element == Element::f32) return __builtin_inff();
  return element == Element::bf16 ? 0x1.ffp127f : 65520.f;
}

inline __attribute__((always_inline)) Vec load_columns(const float* from, std::int64_t count) {
  if (count >= kLanes) return load(from);
  float lane[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) lane[i] = from[i];
  return load(lane);
}

// Element (b, h, t, 0).
inline void* row(const Rows& rows, Element element, std::int64_t b, std::int64_t h, std::int64_t t) {
  return static_cast<char*>(rows.data) + (b * rows.batch + h * rows.head + t * rows.token) * element_bytes(element);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
