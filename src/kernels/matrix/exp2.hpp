// 2^x by the instructions that AVX-512 has for it.
#pragma once

#include <immintrin.h>

#include "kernels/unit/simd.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// 2^x, for x of any sign: 2^⌊x⌋ · p(x - ⌊x⌋), p a minimax fit of 2^f on [0, 1] with p(0) = 1. For weights that will be
// rounded to bf16 p is of degree 4, relative error 2.9e-6; else of degree 5, 8.3e-8.
template <bool Fine>
inline __attribute__((always_inline)) Vec exp2_of(Vec x) {
  constexpr int kFloor = 0x09;  // to minus infinity, no exception
  const Vec f = reinterpret_cast<Vec>(_mm512_maskz_reduce_ps(0xffff, reinterpret_cast<__m512>(x), kFloor));
  Vec p;
  if constexpr (Fine) {
    p = splat(0.0018671386642381549f);
    p = p * f + splat(0.009017008356750011f);
    p = p * f + splat(0.0557999312877655f);
    p = p * f + splat(0.24016444385051727f);
    p = p * f + splat(0.6931512951850891f);
  } else {
    p = splat(0.013426684774458408f);
    p = p * f + splat(0.052242472767829895f);
    p = p * f + splat(0.241280198097229f);
    p = p * f + splat(0.6930448412895203f);
  }
  p = p * f + splat(1.f);
  return reinterpret_cast<Vec>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(x)));
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
