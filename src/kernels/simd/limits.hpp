// Does what the processor can do at best, to measure the kernels by. Nothing here computes anything of use: results go
// to `sink`, so that the compiler leaves the work in.
#pragma once

#include "kernels/simd/tile.hpp"
#include "kernels/simd/vector.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Independent sums: more than a multiply-add's latency times the multiply-adds begun a cycle.
constexpr int kSums = 12;

// Multiply-adds out of registers; returns the floating-point operations of all rounds.
inline double multiply_add_f32(std::int64_t rounds, float* sink) {
  Vec sum[kSums];
  ATTN_UNROLL for (int i = 0; i < kSums; ++i) sum[i] = splat(*sink + static_cast<float>(i));
  const Vec factor = splat(*sink * 0.5f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    ATTN_UNROLL for (int i = 0; i < kSums; ++i) sum[i] = sum[i] * factor + factor;
  }
  Vec total = sum[0];
  ATTN_UNROLL for (int i = 1; i < kSums; ++i) total += sum[i];
  *sink += total[0] * 1e-30f;
  return 2.0 * kSums * kLanes * static_cast<double>(rounds);
}

// Reads `count` floats from memory, in order.
inline void read_memory(const float* data, std::int64_t count, float* sink) {
  constexpr int kLoads = 8;
  Vec sum[kLoads];
  ATTN_UNROLL for (int i = 0; i < kLoads; ++i) sum[i] = splat(0.f);
  for (std::int64_t at = 0; at + kLoads * kLanes <= count; at += kLoads * kLanes) {
    ATTN_UNROLL for (int i = 0; i < kLoads; ++i) sum[i] += load(data + at + i * kLanes);
  }
  Vec total = sum[0];
  ATTN_UNROLL for (int i = 1; i < kLoads; ++i) total += sum[i];
  *sink += total[0] * 1e-30f;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
