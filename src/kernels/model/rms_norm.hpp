// RMSNorm of rows, and its gradient. Squares are summed in double: no finite row overflows them.
#pragma once

#include "kernels/model/problem.hpp"
#include "kernels/simd/arrays.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

template <class T>
inline void rms_norm_to(const RmsNormRows& p) {
  const Vec added = splat(p.added);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const float* x = p.x + row * p.width;
    T* y = static_cast<T*>(p.y) + row * p.width;
    VecD squares;
    each_vector(p.width,
                [&](std::int64_t i, int count) { squares = add_squares(squares, widen(load_some(x + i, count))); });
    const double mean = sum_lanes(squares) / static_cast<double>(p.width);
    const float rstd = static_cast<float>(1 / __builtin_sqrt(mean + static_cast<double>(p.epsilon)));
    each_vector(p.width, [&](std::int64_t i, int count) {
      Vec n = load_some(x + i, count) * splat(rstd);
      if constexpr (sizeof(T) == 2) n = p.rounds_first ? from_bf16(to_bf16(n)) : n;
      store_some(y + i, n * (added + load_some(p.weight + i, count)), count);
    });
    p.rstd[row] = rstd;
  }
}

inline void rms_norm(const RmsNormRows& p) {
  with_element(p.element, [&](auto zero) { rms_norm_to<decltype(zero)>(p); });
}

// y = n · (added + weight), n = x · rstd: dx = rstd · (g - n · mean(g · n)), g = dy · (added + weight)
inline void rms_norm_backward(const RmsNormGradient& p) {
  const Vec added = splat(p.added);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const float *x = p.x + row * p.width, *dy = p.dy + row * p.width;
    const float* residual = p.residual ? p.residual + row * p.width : nullptr;
    float* dx = p.dx + row * p.width;
    const Vec rstd = splat(p.rstd[row]);
    Vec dot = splat(0.f);
    each_vector(p.width, [&](std::int64_t i, int count) {
      const Vec gn = load_some(dy + i, count) * load_some(x + i, count) * rstd;
      dot += gn * (added + load_some(p.weight + i, count));
      store_some(p.d_weight + i, load_some(p.d_weight + i, count) + gn, count);
    });
    const Vec mean_gn = splat(sum_lanes(dot) / static_cast<float>(p.width));
    each_vector(p.width, [&](std::int64_t i, int count) {
      const Vec g = load_some(dy + i, count) * (added + load_some(p.weight + i, count));
      const Vec given = residual ? load_some(residual + i, count) : splat(0.f);
      store_some(dx + i, given + rstd * (g - load_some(x + i, count) * rstd * mean_gn), count);
    });
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
