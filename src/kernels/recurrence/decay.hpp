// A state keeps a share of itself: exp of a logarithmic decay.
#pragma once

#include "kernels/recurrence/problem.hpp"
#include "kernels/simd/arrays.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// e^x to 1 ulp, and nearly always the nearest number for x near 0: a bias of half an ulp would be 1e-4 of what a state
// keeps over 4,096 tokens. Zero below 2^-126, infinite above e^88; NaN stays NaN.
inline __attribute__((always_inline)) Vec exp_decay(Vec x) {
  const Vec magic = splat(12582912.f);  // 1.5 · 2^23: adding it rounds to an integer
  const Vec shifted = x * splat(kLog2e) + magic, n = shifted - magic;
  const Vec r = (x - n * splat(0.693145751953125f)) - n * splat(1.42860682030941723212e-6f);
  Vec p = splat(1.f / 5040);
  p = p * r + splat(1.f / 720);
  p = p * r + splat(1.f / 120);
  p = p * r + splat(1.f / 24);
  p = p * r + splat(1.f / 6);
  p = p * r + splat(0.5f);
  p = p * (r * r) + r;
  const VecU power = (reinterpret_cast<VecU>(shifted) + 127u) << 23;
  Vec y = (p + splat(1.f)) * reinterpret_cast<Vec>(power);
  y = x < splat(-87.f) ? splat(0.f) : y;
  return x > splat(88.f) ? splat(__builtin_inff()) : y;
}

// Returns what is kept at token t, for rows [d, d + count) of the state; by channel the others have 1.
inline __attribute__((always_inline)) Vec kept(const Recurrence& p, std::int64_t t, std::int64_t d, int count) {
  if (!p.decay) return splat(1.f);
  const float* decay = p.decay + t * p.decay_step;
  return exp_decay(p.by_channel ? load_some(decay + d, count) : splat(decay[0]));
}

inline const void* token(const TokenRows& rows, Element element, std::int64_t t) {
  return element_at(rows.data, element, t * rows.step);
}

// `n` numbers of token t as float32, and zeros up to `padded`.
inline void widen_token(const TokenRows& rows, Element element, std::int64_t t, std::int64_t first, std::int64_t n,
                        std::int64_t padded, float* out) {
  const void* from = element_at(rows.data, element, t * rows.step + first);
  std::int64_t i = 0;  // rows are short: a call would take as long
  for (; i + kLanes <= n; i += kLanes) store(out + i, lanes_at(element, element_at(from, element, i)));
  widen(element, element_at(from, element, i), out + i, n - i);
  for (i = n; i < padded; ++i) out[i] = 0;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
