// GELU and its gradient, both forms.
#pragma once

#include "kernels/model/problem.hpp"
#include "kernels/simd/arrays.hpp"
#include "kernels/simd/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// exp(a²) · erfc(a) = Σ kErfc[i] · t^(i+1), t = 1/(1 + a/2): a minimax fit for 0 <= a <= 14, relative error 4.5e-8.
constexpr int kErfcTerms = 9;
constexpr float kErfc[kErfcTerms] = {0.282084331987f, 0.282412097209f,   0.242835056771f,
                                     0.203753012275f, -0.0291502397271f, 0.28173650748f,
                                     -0.49040978089f, 0.28612586965f,    -0.0593868989372f};

// A distribution function's value and density where GELU asks for them.
struct Gate {
  Vec value, slope;
};

// σ(2u), u = √(2/π) · (x + 0.044715 · x³): the tanh form is x times this. By e = exp(-2|u|), so that both tails keep
// their digits.
inline __attribute__((always_inline)) Gate tanh_gate(Vec x) {
  const Vec near = clamp(x, 30.f);  // beyond, the gate is 0 or 1
  const Vec square = near * near;
  const Vec u2 = splat(1.5957691216f) * near * (splat(1.f) + splat(0.044715f) * square);
  const Vec e = exp2_nonpositive(abs(u2) * splat(-kLog2e));
  const Vec large = splat(1.f) / (splat(1.f) + e), small = e * large;
  const VecI positive = near >= splat(0.f);
  return {select(positive, large, small),
          large * small * splat(1.5957691216f) * (splat(1.f) + splat(3 * 0.044715f) * square)};
}

// Φ(x) = ½ erfc(-x/√2) and its density. exp(a²) · erfc(a) is a polynomial in t.
inline __attribute__((always_inline)) Gate exact_gate(Vec x) {
  const Vec near = clamp(x, 14.f);  // beyond, Φ is 0 or 1
  const Vec e = exp2_nonpositive(near * near * splat(-0.5f * kLog2e));
  const Vec t = splat(1.f) / (splat(1.f) + abs(near) * splat(0.35355339059f));
  Vec p = splat(0.f);
  ATTN_UNROLL for (int i = kErfcTerms - 1; i >= 0; --i) p = (p + splat(kErfc[i])) * t;
  const Vec tail = splat(0.5f) * p * e;
  return {select(near > splat(0.f), splat(1.f) - tail, tail), e * splat(0.3989422804f)};
}

template <bool kTanh>
inline __attribute__((always_inline)) Gate gate(Vec x) {
  if constexpr (kTanh) return tanh_gate(x);
  return exact_gate(x);
}

template <bool kTanh>
inline __attribute__((always_inline)) Vec gelu(Vec x) {
  return x * gate<kTanh>(x).value;
}

// y = x · gate(x)
template <bool kTanh>
inline __attribute__((always_inline)) Vec gelu_gradient(Vec dy, Vec x) {
  const Gate g = gate<kTanh>(x);
  return dy * (g.value + clamp(x, 30.f) * g.slope);
}

template <bool kTanh>
inline void gelu_elements(const GeluRun& p) {
  with_element(p.element, [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(p.x);
    T* y = static_cast<T*>(p.out);
    each_vector(p.n,
                [=](std::int64_t i, int count) { store_some(y + i, gelu<kTanh>(load_some(x + i, count)), count); });
  });
}

template <bool kTanh>
inline void gelu_gradient_elements(const GeluRun& p) {
  with_element(p.element, [&](auto zero) {
    using T = decltype(zero);
    const T *dy = static_cast<const T*>(p.dy), *x = static_cast<const T*>(p.x);
    T* dx = static_cast<T*>(p.out);
    each_vector(p.n, [=](std::int64_t i, int count) {
      store_some(dx + i, gelu_gradient<kTanh>(load_some(dy + i, count), load_some(x + i, count)), count);
    });
  });
}

inline void gelu(const GeluRun& p) { p.tanh_form ? gelu_elements<true>(p) : gelu_elements<false>(p); }

inline void gelu_backward(const GeluRun& p) {
  p.tanh_form ? gelu_gradient_elements<true>(p) : gelu_gradient_elements<false>(p);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
