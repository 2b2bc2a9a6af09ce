// LayerNorm of rows, and its gradient. Statistics are summed in double: no finite row overflows them.
#pragma once

#include "kernels/model/problem.hpp"
#include "kernels/simd/arrays.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

template <class T>
inline void layer_norm_to(const LayerNormRows& p) {
  const double n = static_cast<double>(p.width);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const float* x = p.x + row * p.width;
    T* y = static_cast<T*>(p.y) + row * p.width;
    VecD sums, squares;
    each_vector(p.width, [&](std::int64_t i, int count) { sums = sums + widen(load_some(x + i, count)); });
    const double mean = sum_lanes(sums) / n;
    each_vector(p.width, [&](std::int64_t i, int count) {
      VecD centred = widen(load_some(x + i, count));
      centred.low -= mean, centred.high -= mean;
      for (int lane = count; lane < kLanes; ++lane) centred.set(lane, 0);
      squares = add_squares(squares, centred);
    });
    const double rstd = 1 / __builtin_sqrt(sum_lanes(squares) / n + static_cast<double>(p.epsilon));
    // x · rstd first would lose what x - mean cancels; x - mean may leave float32's range where x does not, nearly.
    const float shift = static_cast<float>(mean), factor = static_cast<float>(rstd);
    each_vector(p.width, [&](std::int64_t i, int count) {
      const Vec centred = load_some(x + i, count) * splat(0.5f) - splat(0.5f * shift);
      store_some(y + i, centred * splat(2 * factor) * load_some(p.weight + i, count) + load_some(p.bias + i, count),
                 count);
    });
    p.mean[row] = shift;
    p.rstd[row] = factor;
  }
}

inline void layer_norm(const LayerNormRows& p) {
  with_element(p.element, [&](auto zero) { layer_norm_to<decltype(zero)>(p); });
}

// y = n · weight + bias, n = (x - mean) · rstd: dx = rstd · (g - mean(g) - n · mean(g · n)), g = dy · weight
inline void layer_norm_backward(const LayerNormGradient& p) {
  const float width = static_cast<float>(p.width);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const float *x = p.x + row * p.width, *dy = p.dy + row * p.width;
    const float* residual = p.residual ? p.residual + row * p.width : nullptr;
    float* dx = p.dx + row * p.width;
    const Vec shift = splat(0.5f * p.mean[row]), factor = splat(2 * p.rstd[row]);
    const auto normal = [&](std::int64_t i, int count) {
      Vec n = (load_some(x + i, count) * splat(0.5f) - shift) * factor;
      for (int lane = count; lane < kLanes; ++lane) n[lane] = 0;
      return n;
    };
    Vec sum = splat(0.f), dot = splat(0.f);
    each_vector(p.width, [&](std::int64_t i, int count) {
      const Vec g = load_some(dy + i, count), n = normal(i, count), scaled = g * load_some(p.weight + i, count);
      sum += scaled;
      dot += scaled * n;
      store_some(p.d_weight + i, load_some(p.d_weight + i, count) + g * n, count);
      store_some(p.d_bias + i, load_some(p.d_bias + i, count) + g, count);
    });
    const Vec mean_g = splat(sum_lanes(sum) / width), mean_gn = splat(sum_lanes(dot) / width);
    const Vec rstd = splat(p.rstd[row]);
    each_vector(p.width, [&](std::int64_t i, int count) {
      const Vec g = load_some(dy + i, count) * load_some(p.weight + i, count);
      const Vec given = residual ? load_some(residual + i, count) : splat(0.f);
      store_some(dx + i, given + rstd * (g - mean_g - normal(i, count) * mean_gn), count);
    });
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
