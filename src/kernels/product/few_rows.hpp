// y = x · weightᵀ for the few rows of x that a decoder has: the weight is read once, as it lies, at the speed of
// memory. An element's sum runs over the depth in order, one fused multiply-add each, as in product.hpp: the same bits.
#pragma once

#include "kernels/plan.hpp"
#include "kernels/prefetch.hpp"
#include "kernels/rounding.hpp"
#include "kernels/simd/elements.hpp"
#include "kernels/simd/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kOutputGroups = 2;                     // vectors of outputs at once: sums that do not wait for each other
constexpr int kOutputs = kOutputGroups * kLanes;     // of a pass
constexpr std::int64_t kTaskOutputs = 4 * kOutputs;  // of a task
constexpr int kRowsAtOnce = kRows > 6 ? 4 : 2;       // rows of x that share a pass
// Bytes of each row of the weight that are prefetched: there are too many rows for the processor to follow.
constexpr std::int64_t kAhead = 512;

// Row `output` of the weight from depth k on; past the last output, the last one: its sums are not stored.
template <class T>
inline const T* weight_at(const FewRows& p, std::int64_t output, std::int64_t k) {
  return static_cast<const T*>(p.weight) + (output < p.n ? output : p.n - 1) * p.weight_row + k;
}

inline float widened(float x) { return x; }
inline float widened(std::uint16_t x) { return from_bf16(x); }
inline float widened(std::int8_t x) { return x; }

// sums[i] += x[i][k] · w for every row i.
template <int Rows>
inline __attribute__((always_inline)) void add_depth(const float* x, std::int64_t step, Vec w, Vec (&sums)[Rows]) {
  ATTN_UNROLL for (int i = 0; i < Rows; ++i) sums[i] = splat(x[i * step]) * w + sums[i];
}

// A word of each output's weight: a depth of float32; with bfloat16 two, in its halves; with int8 four, in its bytes.
template <int Rows>
inline __attribute__((always_inline)) void add_word(const float* x, std::int64_t step, Vec w, float,
                                                    Vec (&sums)[Rows]) {
  add_depth<Rows>(x, step, w, sums);
}
template <int Rows>
inline __attribute__((always_inline)) void add_word(const float* x, std::int64_t step, Vec w, std::uint16_t,
                                                    Vec (&sums)[Rows]) {
  const VecU pair = reinterpret_cast<VecU>(w);
  add_depth<Rows>(x, step, reinterpret_cast<Vec>(pair << 16), sums);
  add_depth<Rows>(x + 1, step, reinterpret_cast<Vec>(pair & 0xffff0000u), sums);
}
template <int Rows>
inline __attribute__((always_inline)) void add_word(const float* x, std::int64_t step, Vec w, std::int8_t,
                                                    Vec (&sums)[Rows]) {
  ATTN_UNROLL for (int byte = 0; byte < 4; ++byte) {
    const VecI number = reinterpret_cast<VecI>(reinterpret_cast<VecU>(w) << (24 - 8 * byte)) >> 24;
    add_depth<Rows>(x + byte, step, __builtin_convertvector(number, Vec), sums);
  }
}

// How far from depth k of a row the element to prefetch lies: near a row's end in the row of the next pass.
template <class T>
inline std::int64_t ahead_of(const FewRows& p, std::int64_t k) {
  constexpr auto ahead = static_cast<std::int64_t>(kAhead / sizeof(T));
  return k + ahead < p.k ? ahead : ahead - p.k + kOutputs * p.weight_row;
}

// The weight's rows of kOutputs outputs from `first` on, whose sums begin at zero.
template <class T, int Rows>
inline __attribute__((always_inline)) void begin_pass(const FewRows& p, std::int64_t first,
                                                      const T* (&weight)[kOutputs], Vec (&sums)[kOutputGroups][Rows]) {
  for (int j = 0; j < kOutputs; ++j) weight[j] = weight_at<T>(p, first + j, 0);
  ATTN_UNROLL for (int g = 0; g < kOutputGroups; ++g) {
    ATTN_UNROLL for (int i = 0; i < Rows; ++i) sums[g][i] = splat(0.f);
  }
}

// Sums of kOutputs outputs from `first` on, of Rows rows of x from `row` on, in float32.
template <class T>
struct FloatPass {
  const FewRows& p;

  template <int Rows>
  inline __attribute__((always_inline)) void operator()(std::int64_t row, std::int64_t first,
                                                        Vec (&sums)[kOutputGroups][Rows]) const {
    constexpr std::int64_t depths = sizeof(float) / sizeof(T),
                           square = kLanes * depths;  // of a word, of a square of them
    // Four products in a row would wait for each other longer than their words take to load: groups take turns.
    constexpr bool kInTurn = depths == 4;
    float words[kOutputGroups][kLanes][kLanes];
    const float* x = p.a + row * p.a_row;
    const T* weight[kOutputs];
    begin_pass(p, first, weight, sums);
    std::int64_t k = 0;
    for (; k + square <= p.k; k += square) {
      const std::int64_t ahead = ahead_of<T>(p, k);
      ATTN_UNROLL for (int g = 0; g < kOutputGroups; ++g) {
        Vec w[kLanes];
        ATTN_UNROLL for (int j = 0; j < kLanes; ++j) {
          const T* at = weight[g * kLanes + j] + k;
          __builtin_memcpy(&w[j], at, sizeof w[j]);
          prefetch<Cache::l1>(at + ahead);
        }
        transpose(w);
        if constexpr (kInTurn) {
          ATTN_UNROLL for (int j = 0; j < kLanes; ++j) store(words[g][j], w[j]);
        } else {
          ATTN_UNROLL for (int j = 0; j < kLanes; ++j) add_word<Rows>(x + k + j * depths, p.a_row, w[j], T{}, sums[g]);
        }
      }
      for (int j = 0; kInTurn && j < kLanes; ++j) {
        ATTN_UNROLL for (int g = 0; g < kOutputGroups; ++g) {
          add_word<Rows>(x + k + j * depths, p.a_row, load(words[g][j]), T{}, sums[g]);
        }
      }
    }
    for (; k < p.k; ++k) {
      for (int g = 0; g < kOutputGroups; ++g) {
        float column[kLanes];
        for (int j = 0; j < kLanes; ++j) column[j] = widened(weight[g * kLanes + j][k]);
        add_depth<Rows>(x + k, p.a_row, load(column), sums[g]);
      }
    }
  }
};

// Returns whether all results are in float32's range.
template <int Rows, class Pass>
inline bool few_rows_block(const FewRows& p, const Pass& pass, std::int64_t row, std::int64_t first) {
  Vec sums[kOutputGroups][Rows];
  pass(row, first, sums);
  std::uint32_t out_of_range = 0;
  const std::int64_t outputs = p.n - first < kOutputs ? p.n - first : kOutputs;
  for (int i = 0; i < Rows; ++i) {
    float line[kOutputs];
    for (int g = 0; g < kOutputGroups; ++g) store(line + g * kLanes, sums[g][i]);
    float* out = p.c + (row + i) * p.c_row + first;
    for (std::int64_t j = 0; j < outputs; ++j) {
      out[j] = line[j] + (p.bias ? p.bias[first + j] : 0);
      out_of_range |= (float_to_bits(out[j]) & 0x7f800000u) == 0x7f800000u;
    }
  }
  return out_of_range == 0;
}

template <class Pass>
inline bool run_few_rows(const FewRows& p, const FewRowsPlan& plan, std::int64_t task, const Pass& pass) {
  const std::int64_t begin = task * plan.task_outputs, end = least_of(begin + plan.task_outputs, p.n);
  bool in_range = true;
  for (std::int64_t first = begin; first < end; first += kOutputs) {
    std::int64_t row = 0;
    for (; row + kRowsAtOnce <= p.m; row += kRowsAtOnce) {
      in_range = few_rows_block<kRowsAtOnce>(p, pass, row, first) && in_range;
    }
    for (; row < p.m; ++row) in_range = few_rows_block<1>(p, pass, row, first) && in_range;
  }
  return in_range;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
