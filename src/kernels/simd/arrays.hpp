// Arrays of any length, a vector at a time.
#pragma once

#include "kernels/simd/elements.hpp"
#include "kernels/simd/vector.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline __attribute__((always_inline)) Vec select(VecI mask, Vec a, Vec b) { return mask ? a : b; }
inline __attribute__((always_inline)) Vec min(Vec a, Vec b) { return a < b ? a : b; }
inline __attribute__((always_inline)) Vec abs(Vec x) { return select(x < splat(0.f), -x, x); }
inline __attribute__((always_inline)) Vec clamp(Vec x, float limit) {
  const Vec low = select(x < splat(-limit), splat(-limit), x);
  return select(low > splat(limit), splat(limit), low);
}

// f(lanes) over n elements, the last ones through a buffer.
template <class F>
inline __attribute__((always_inline)) void each_vector(std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

inline __attribute__((always_inline)) Vec load_some(const float* p, int count) {
  if (count == kLanes) return load(p);
  float lane[kLanes] = {};
  for (int i = 0; i < count; ++i) lane[i] = p[i];
  return load(lane);
}

inline __attribute__((always_inline)) void store_some(float* p, Vec v, int count) {
  if (count == kLanes) return store(p, v);
  float lane[kLanes];
  store(lane, v);
  for (int i = 0; i < count; ++i) p[i] = lane[i];
}

// The same of bf16.
inline __attribute__((always_inline)) Vec load_some(const std::uint16_t* p, int count) {
  if (count == kLanes) return from_bf16(half_lanes(p));
  std::uint16_t lane[kLanes] = {};
  for (int i = 0; i < count; ++i) lane[i] = p[i];
  return from_bf16(half_lanes(lane));
}

inline __attribute__((always_inline)) void store_some(std::uint16_t* p, Vec v, int count) {
  const std::uint16_t __attribute__((vector_size(kLanes * 2))) half =
      __builtin_convertvector(to_bf16(v), std::uint16_t __attribute__((vector_size(kLanes * 2))));
  __builtin_memcpy(p, &half, static_cast<std::size_t>(count) * 2);
}

// f(a float or a bf16, as its bits) for arrays of either.
template <class F>
inline __attribute__((always_inline)) void with_element(Element element, F f) {
  element == Element::bf16 ? f(std::uint16_t{}) : f(float{});
}

// Doubles beside a vector's floats, to sum in. g++ keeps a vector that is wider than the unit's in memory, and moves it
// number by number: so these are two.
struct VecD {
  using Half = double __attribute__((vector_size(kLanes * 4)));
  Half low{}, high{};

  __attribute__((always_inline)) double operator[](int lane) const {
    return lane < kLanes / 2 ? low[lane] : high[lane - kLanes / 2];
  }
  __attribute__((always_inline)) void set(int lane, double number) {
    lane < kLanes / 2 ? void(low[lane] = number) : void(high[lane - kLanes / 2] = number);
  }
};

// The sum of a and the squares of b.
inline __attribute__((always_inline)) VecD add_squares(const VecD& a, const VecD& b) {
  return {a.low + b.low * b.low, a.high + b.high * b.high};
}
inline __attribute__((always_inline)) VecD operator+(const VecD& a, const VecD& b) {
  return {a.low + b.low, a.high + b.high};
}

template <int... kLane>
struct LowerLanes {
  static inline __attribute__((always_inline)) VecD widen(Vec v) {
    if constexpr (kLanes == 4) return {VecD::Half{v[0], v[1]}, VecD::Half{v[2], v[3]}};  // no shuffles of two numbers
    return {__builtin_convertvector(__builtin_shufflevector(v, v, kLane...), VecD::Half),
            __builtin_convertvector(__builtin_shufflevector(v, v, (kLane + kLanes / 2)...), VecD::Half)};
  }
};
template <int kCount, int... kLane>
struct HalfOfLanes : HalfOfLanes<kCount - 1, kCount - 1, kLane...> {};
template <int... kLane>
struct HalfOfLanes<0, kLane...> : LowerLanes<kLane...> {};

inline __attribute__((always_inline)) VecD widen(Vec v) { return HalfOfLanes<kLanes / 2>::widen(v); }

inline double sum_lanes(const VecD& v) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
