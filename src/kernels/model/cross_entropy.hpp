// -log softmax(logits)[target] of a row, and its gradient.
#pragma once

#include "kernels/model/problem.hpp"
#include "kernels/simd/arrays.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline __attribute__((always_inline)) Vec exp_below(Vec x, Vec maximum) {
  return exp2_nonpositive((x - maximum) * splat(kLog2e));
}

inline double cross_entropy(const LogitsRow& p) {
  Vec highest = splat(-__builtin_inff());
  std::int64_t i = 0;
  for (; i + kLanes <= p.n; i += kLanes) highest = max(highest, load(p.logits + i));
  float top = p.logits[0];
  for (int lane = 0; lane < kLanes; ++lane) top = highest[lane] > top ? highest[lane] : top;
  for (; i < p.n; ++i) top = p.logits[i] > top ? p.logits[i] : top;

  const Vec maximum = splat(top);
  VecD sums;
  each_vector(p.n, [&](std::int64_t at, int count) {
    Vec e = exp_below(load_some(p.logits + at, count), maximum);
    for (int lane = count; lane < kLanes; ++lane) e[lane] = 0;
    sums = sums + widen(e);
  });
  const double sum = sum_lanes(sums);
  const double loss = __builtin_log(sum) + static_cast<double>(top) - static_cast<double>(p.logits[p.target]);
  if (p.gradient) {
    const Vec factor = splat(static_cast<float>(static_cast<double>(p.factor) / sum));
    each_vector(p.n, [&](std::int64_t at, int count) {
      store_some(p.gradient + at, exp_below(load_some(p.logits + at, count), maximum) * factor, count);
    });
    p.gradient[p.target] -= p.factor;
  }
  return loss;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
