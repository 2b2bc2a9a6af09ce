// The peak of bf16 products out of registers, as simd/limits.hpp has it for float32.
#pragma once

#include <cstdint>

namespace attn::kernels::ATTN_UNIT {
namespace {

#if defined(ATTN_AMX)

// Four sums, as many as the matrix core has: enough to hide a product's latency.
inline double multiply_add_bf16(std::int64_t rounds, float* sink) {
  [[maybe_unused]] const Session session;
  tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  tile_zero<4>(), tile_zero<5>(), tile_zero<6>(), tile_zero<7>();
  for (std::int64_t round = 0; round < rounds; ++round) {
    tile_multiply<0, 4, 6>(), tile_multiply<1, 4, 7>(), tile_multiply<2, 5, 6>(), tile_multiply<3, 5, 7>();
  }
  *sink += 1e-30f;
  constexpr double kOperations = 4 * 16 * 16 * 32 * 2;
  return kOperations * static_cast<double>(rounds);
}

#else

inline double multiply_add_bf16(std::int64_t rounds, float* sink) {
  constexpr int kSums = 16;
  __m512 sum[kSums];
  ATTN_UNROLL for (int i = 0; i < kSums; ++i) sum[i] = _mm512_set1_ps(*sink + static_cast<float>(i));
  const __m512bh a = _mm512_cvtne2ps_pbh(sum[0], sum[0]), b = a;
  for (std::int64_t round = 0; round < rounds; ++round) {
    ATTN_UNROLL for (int i = 0; i < kSums; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) *sink += sum[i][0] * 1e-30f;
  return 2.0 * kSums * 32 * static_cast<double>(rounds);
}

#endif

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
