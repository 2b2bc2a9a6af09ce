// The fused forward on bf16 products: keys against packed queries, weights rounded to bf16 against packed values.
// Sums of weights are taken in float32 before the rounding.
#pragma once

#include "kernels/matrix/pack.hpp"
#include "kernels/unit/online.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline bool takes(const Problem& p) { return takes(p.element, p.precision); }

// The query's factor, cut in two: a power of two (and the sign), by which bf16 is multiplied exactly, when packed;
// and the rest, from 1 to 2, for softmax to apply. Scores so pass float32's range only if they do scaled.
struct Factor {
  float packed = 0, rest = 1;

  explicit Factor(float factor) {
    const std::uint32_t bits = float_to_bits(factor);
    if ((bits & 0x7fffffffu) == 0) return;
    packed = bits_to_float((bits & 0x7f800000u) ? bits & 0xff800000u : (bits & 0x80000000u) | 0x00800000u);
    rest = factor / packed;
  }
};

class MatrixCore {
 public:
  static constexpr int kKeyStep = kDepthStep, kKeyRows = 2;  // keys are the depth of the second product

  MatrixCore(const Problem& p, Carver& take)
      : p_(p),
        factor_(query_factor(p)),
        parts_(parts_of(p.element, p.precision)),
        products_(products_of(parts_)),
        depth_(round_up(p.d, 32)),
        width_(round_up(p.dv, 16)) {
    queries_ = halves(take, kGroups * parts_ * depth_ * kColumns);
    keys_ = halves(take, parts_ * kKeys * depth_);
    values_ = halves(take, parts_ * kKeys * width_);
    weights_ = halves(take, parts_ * kKeys * kColumns);
  }

  void pack_queries(const Span& span, int group) {
    for (int half = 0; half < kColumns; half += kLanes) {
      const void* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const std::int64_t r = group * kColumns + half + i;
        const Query at = query(p_, span, r < span.rows ? r : 0);
        rows[i] = r < span.rows ? row(p_.q, p_.element, span.batch, at.head, at.token) : nullptr;
      }
      for (int part = 0; part < parts_; ++part) {
        pack_columns(p_.element, rows, p_.d, factor_.packed, part, query_part(group, part) + 2 * half, depth_);
      }
    }
  }

  // Keys are read in place when their rows are whole, dense pairs; values are always packed.
  void load_block(const Span& span, std::int64_t first, std::int64_t count) {
    const std::int64_t keys = round_up(count, kKeyStep);
    if (p_.element == Element::bf16 && p_.d % kDepthStep == 0 && p_.k.token == p_.d && keys == count) {
      left_keys_ = {static_cast<const std::uint16_t*>(row(p_.k, p_.element, span.batch, span.key_head, first)), p_.d,
                    0};
    } else {
      left_keys_ = {keys_, depth_, kKeys * depth_};
      for (int part = 0; part < parts_; ++part) {
        for (std::int64_t j = 0; j < keys; ++j) {
          const void* key = j < count ? row(p_.k, p_.element, span.batch, span.key_head, first + j) : nullptr;
          pack_row(p_.element, key, p_.d, part, keys_ + part * left_keys_.part + j * depth_, depth_);
        }
      }
    }
    for (std::int64_t j = 0; j < keys; j += 32) {
      const void* rows[32];
      for (int i = 0; i < 32; ++i) {
        rows[i] = j + i < count ? row(p_.v, p_.element, span.batch, span.key_head, first + j + i) : nullptr;
      }
      for (int part = 0; part < parts_; ++part) {
        pack_transposed(p_.element, rows, p_.dv, part, values_ + part * kKeys * width_ + j, kKeys);
      }
    }
  }

  float scores(int group, std::int64_t from, std::int64_t keys, float* s) const {
    const Left left{left_keys_.data + from * left_keys_.row, left_keys_.row, left_keys_.part};
    multiply<false>(round_up(keys, kRowStep), left, {query_part(group, 0), depth_ * kColumns}, s,
                    round_up(p_.d, kDepthStep) / 2, products_);
    return factor_.rest;
  }

  __attribute__((always_inline)) void store_weights(float*, std::int64_t j, int w, const Vec (&weights)[kKeyRows]) {
    const Pairs high = interleaved(weights[0], weights[1]);
    std::uint16_t* at = weights_ + j * kColumns + 2 * w;
    __builtin_memcpy(at, &high, sizeof high);
    if (parts_ == 1) return;
    const Vec first = weights[0] - reinterpret_cast<Vec>(high << 16);
    const Vec second = weights[1] - reinterpret_cast<Vec>(high & 0xffff0000u);
    const Pairs low = interleaved(first, second);
    __builtin_memcpy(at + kKeys * kColumns, &low, sizeof low);
  }

  // A lane holds two keys' weights; the other one stays.
  void keep(float*, std::int64_t j, int w, VecI kept) const {
    const VecI other = splat(static_cast<std::int32_t>(j % 2 == 0 ? 0xffff0000u : 0x0000ffffu));
    for (int part = 0; part < parts_; ++part) {
      std::uint16_t* at = weights_ + part * kKeys * kColumns + j / 2 * 2 * kColumns + 2 * w;
      VecI pairs;
      __builtin_memcpy(&pairs, at, sizeof pairs);
      pairs &= kept | other;
      __builtin_memcpy(at, &pairs, sizeof pairs);
    }
  }

  // contextᵀ (dv, queries) += vᵀ · weights
  void add_context(std::int64_t from, std::int64_t keys, const float*, float* context) const {
    multiply<true>(round_up(p_.dv, kRowStep), {values_ + from, kKeys, kKeys * width_}, {weights_, kKeys * kColumns},
                   context, keys / 2, products_);
  }

 private:
  std::uint16_t* query_part(int group, int part) const {
    return queries_ + (group * parts_ + part) * depth_ * kColumns;
  }

  // (kLanes, 2) in bf16: a and b, lane by lane.
  static __attribute__((always_inline)) Pairs interleaved(Vec a, Vec b) {
    const auto both =
        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(a)));
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return reinterpret_cast<Pairs>(_mm512_permutexvar_epi16(order, both));
  }

  const Problem& p_;
  Factor factor_;
  int parts_, products_;
  std::int64_t depth_, width_;  // of packed queries and keys; of packed values
  std::uint16_t *queries_, *keys_, *values_, *weights_;
  Left left_keys_{};
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
