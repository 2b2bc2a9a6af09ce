// The product of a gate and what it lets through, activation(gate) · up, and its gradient.
#pragma once

#include "kernels/model/gelu.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// σ(x) and its slope, by e = exp(-|x|), so that both tails keep their digits.
inline __attribute__((always_inline)) Gate sigmoid_gate(Vec x) {
  const Vec e = exp2_nonpositive(abs(x) * splat(-kLog2e));
  const Vec large = splat(1.f) / (splat(1.f) + e), small = e * large;
  return {select(x >= splat(0.f), large, small), large * small};
}

template <Activation kind>
inline __attribute__((always_inline)) Gate gate(Vec x) {
  if constexpr (kind == Activation::silu || kind == Activation::sigmoid) return sigmoid_gate(x);
  return gate<kind == Activation::gelu_tanh>(x);
}

template <class F>
inline __attribute__((always_inline)) void with_activation(Activation kind, F f) {
  switch (kind) {
    case Activation::silu:
      return f.template operator()<Activation::silu>();
    case Activation::gelu_tanh:
      return f.template operator()<Activation::gelu_tanh>();
    case Activation::gelu:
      return f.template operator()<Activation::gelu>();
    case Activation::sigmoid:
      return f.template operator()<Activation::sigmoid>();
  }
}

template <Activation kind, class T>
inline void gated_elements(const GatedRun& p) {
  const T *x = static_cast<const T*>(p.gate), *up = static_cast<const T*>(p.up);
  T* out = static_cast<T*>(p.out);
  each_vector(p.n, [=](std::int64_t i, int count) {
    const Vec v = load_some(x + i, count);
    const Vec open = gate<kind>(v).value, active = kind == Activation::sigmoid ? open : v * open;
    store_some(out + i, active * load_some(up + i, count), count);
  });
}

template <Activation kind, class T>
inline void gated_gradient_elements(const GatedRun& p) {
  constexpr float kSlopeIsZero = kind == Activation::silu ? 126.f : 30.f;  // beyond, where x · slope must not be NaN
  const T *x = static_cast<const T*>(p.gate), *up = static_cast<const T*>(p.up), *dy = static_cast<const T*>(p.dy);
  T *d_gate = static_cast<T*>(p.out), *d_up = static_cast<T*>(p.d_up);
  each_vector(p.n, [=](std::int64_t i, int count) {
    const Vec v = load_some(x + i, count), g = load_some(dy + i, count), u = load_some(up + i, count);
    const Gate open = gate<kind>(v);
    constexpr bool sigmoid = kind == Activation::sigmoid;
    store_some(d_gate + i, g * u * (sigmoid ? open.slope : open.value + clamp(v, kSlopeIsZero) * open.slope), count);
    store_some(d_up + i, g * (sigmoid ? open.value : v * open.value), count);
  });
}

inline void gated(const GatedRun& p) {
  with_activation(p.activation, [&]<Activation kind>() {
    with_element(p.element, [&](auto zero) { gated_elements<kind, decltype(zero)>(p); });
  });
}

inline void gated_backward(const GatedRun& p) {
  with_activation(p.activation, [&]<Activation kind>() {
    with_element(p.element, [&](auto zero) { gated_gradient_elements<kind, decltype(zero)>(p); });
  });
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
