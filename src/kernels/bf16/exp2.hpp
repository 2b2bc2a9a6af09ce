// 2^x by the instructions that AVX-512 has for it.
#pragma once

#include "kernels/simd/vector.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// 2^x for x <= 0, or a little above; zero below 2^-125, as subnormal weights would take a hundred times as long. Fine:
// as float32 has it. Else, for weights that will be rounded to bf16, 2^⌊x⌋ · p(x - ⌊x⌋), p a minimax fit of 2^f on [0,
// 1] of degree 4 with p(0) = 1, relative error 2.9e-6.
template <bool Fine>
inline __attribute__((always_inline)) Vec exp2_of(Vec x) {
  if constexpr (Fine) return exp2_nonpositive(x);
  const Vec f = fraction(x);
  Vec p = splat(0.013426684774458408f);
  p = p * f + splat(0.052242472767829895f);
  p = p * f + splat(0.241280198097229f);
  p = p * f + splat(0.6930448412895203f);
  return scaled_by_floor(p * f + splat(1.f), x);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
