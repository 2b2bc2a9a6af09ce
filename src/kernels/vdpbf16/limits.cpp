// The peak of bf16 products out of registers, as simd/limits.hpp has it for float32.
#include "kernels/vdpbf16/multiply.hpp"

namespace attn::kernels::ATTN_UNIT {

double multiply_add_bf16(std::int64_t rounds, float* sink);

double multiply_add_bf16(std::int64_t rounds, float* sink) {
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

}  // namespace attn::kernels::ATTN_UNIT
