// AdamW's step on a run of weights, in place, and the sum of squares that clipping asks for.
#pragma once

#include "kernels/model/problem.hpp"
#include "kernels/simd/arrays.hpp"
#include "kernels/simd/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline __attribute__((always_inline)) Vec square_root(Vec x) {
  Vec root;
  ATTN_UNROLL for (int i = 0; i < kLanes; ++i) root[i] = __builtin_sqrtf(x[i]);
  return root;
}

inline void adamw(const AdamWStep& p) {
  const Vec largest = splat(3.4028234e38f);
  each_vector(p.n, [&](std::int64_t i, int count) {
    const Vec g = load_some(p.grad + i, count) * splat(p.grad_factor), m = load_some(p.mean + i, count);
    const Vec mean = m + (g - m) * splat(1 - p.beta1);
    const Vec square = min(load_some(p.square + i, count) * splat(p.beta2) + g * g * splat(1 - p.beta2), largest);
    const Vec root = square_root(square) * splat(p.square_factor) + splat(p.epsilon);
    const Vec value = load_some(p.value + i, count) * splat(p.decay) - splat(p.rate) * mean / root;
    store_some(p.mean + i, mean, count);
    store_some(p.square + i, square, count);
    store_some(p.value + i, value, count);
  });
}

inline double sum_of_squares(std::int64_t n, const float* x) {
  VecD sums;
  each_vector(n, [&](std::int64_t i, int count) { sums = add_squares(sums, widen(load_some(x + i, count))); });
  return sum_lanes(sums);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
