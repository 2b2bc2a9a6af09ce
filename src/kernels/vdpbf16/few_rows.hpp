// y = x · weightᵀ for the few rows of x that a decoder has, as in product/few_rows.hpp, by vdpbf16ps: a sum takes pairs
// in the same order as in multiply.hpp, for the same bits.
#pragma once

#include "kernels/bf16/pack.hpp"
#include "kernels/plan.hpp"
#include "kernels/product/few_rows.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kSquareDepth = 2 * kLanes;  // of a square of pairs

// The rows of x, rounded, and zeros behind them.
struct FewRowsScratch {
  std::int64_t depth;
  std::uint16_t* x;

  FewRowsScratch(const FewRows& p, const FewRowsPlan&, Workspace& take)
      : depth(round_up(p.k, kSquareDepth)), x(halves(take, depth * p.m)) {}
};

// 32 numbers of a row of the weight, as pairs.
inline __attribute__((always_inline)) Vec pairs_at(const float* row) {
  Vec first, second;
  __builtin_memcpy(&first, row, sizeof first);
  __builtin_memcpy(&second, row + kLanes, sizeof second);
  return reinterpret_cast<Vec>(round_bf16(first, second));
}
inline __attribute__((always_inline)) Vec pairs_at(const std::uint16_t* row) {
  Vec pairs;
  __builtin_memcpy(&pairs, row, sizeof pairs);
  return pairs;
}
inline __attribute__((always_inline)) Vec pairs_at(const std::int8_t* row) {
  return reinterpret_cast<Vec>(high_halves(byte_lanes(row), byte_lanes(row + kLanes)));
}

// The same of a row's last ones, and zeros.
inline Vec last_pairs(Element element, const void* row, std::int64_t count) {
  return reinterpret_cast<Vec>(load_parts<1>(element, row, 0, count).part[0]);
}

// Sums of kOutputs outputs from `first` on, of Rows rows of x from `row` on.
template <class T>
struct PairPass {
  const FewRows& p;
  const FewRowsScratch& packed;

  template <int Rows>
  inline void operator()(std::int64_t row, std::int64_t first, Vec (&sums)[kOutputGroups][Rows]) const {
    const std::uint16_t* x = packed.x + row * packed.depth;
    const T* weight[kOutputs];
    begin_pass(p, first, weight, sums);
    std::int64_t k = 0;
    for (; k + kSquareDepth <= p.k; k += kSquareDepth) {
      const std::int64_t ahead = ahead_of<T>(p, k);
      ATTN_UNROLL for (int g = 0; g < kOutputGroups; ++g) {
        Vec w[kLanes];
        ATTN_UNROLL for (int j = 0; j < kLanes; ++j) {
          const T* at = weight[g * kLanes + j] + k;
          w[j] = pairs_at(at);
          for (std::int64_t line = 0; line < kSquareDepth; line += kCacheLine / sizeof(T)) {
            prefetch<Cache::l1>(at + ahead + line);
          }
        }
        transpose(w);
        ATTN_UNROLL for (int j = 0; j < kLanes; ++j) add_pairs<Rows>(x + k + 2 * j, w[j], sums[g]);
      }
    }
    if (k == p.k) return;
    for (int g = 0; g < kOutputGroups; ++g) {
      Vec w[kLanes];
      for (int j = 0; j < kLanes; ++j) w[j] = last_pairs(p.element, weight[g * kLanes + j] + k, p.k - k);
      transpose(w);
      for (int j = 0; 2 * j < p.k - k; ++j) add_pairs<Rows>(x + k + 2 * j, w[j], sums[g]);
    }
  }

  // sums[i] += x[i][k] · w[k] + x[i][k + 1] · w[k + 1], a pair.
  template <int Rows>
  inline __attribute__((always_inline)) void add_pairs(const std::uint16_t* x, Vec w, Vec (&sums)[Rows]) const {
    ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
      sums[i] = reinterpret_cast<Vec>(_mm512_dpbf16_ps(
          reinterpret_cast<__m512>(sums[i]), broadcast_pair(x + i * packed.depth), reinterpret_cast<__m512bh>(w)));
    }
  }
};

inline bool run_few_rows(const FewRows& p, const FewRowsPlan& plan, std::int64_t task, const FewRowsScratch& mem) {
  for (std::int64_t i = 0; i < p.m; ++i) {
    pack_row(Element::f32, p.a + i * p.a_row, p.k, kOnePart, mem.x + i * mem.depth, mem.depth);
  }
  if (p.element == Element::i8) return run_few_rows(p, plan, task, PairPass<std::int8_t>{p, mem});
  if (p.element == Element::bf16) return run_few_rows(p, plan, task, PairPass<std::uint16_t>{p, mem});
  return run_few_rows(p, plan, task, PairPass<float>{p, mem});
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
