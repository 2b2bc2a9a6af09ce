// Softmax of strips of scores, kForwardStrip keys by kColumns queries, a little at a time: the tiles' products run
// beside the vector units, and call it between them.
#pragma once

#include "kernels/attention/softmax.hpp"
#include "kernels/bf16/exp2.hpp"
#include "kernels/bf16/packed_blocks.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// (kLanes, 2) in bf16: positive a and b, lane by lane, rounded to nearest, a tie up. Additions and a move of bytes, for
// beside the tiles vcvtne2ps2bf16 takes as long as four of them.
inline __attribute__((always_inline)) Pairs interleaved(Vec a, Vec b) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i first = _mm512_add_epi32(reinterpret_cast<__m512i>(a), half);
  const __m512i second = _mm512_add_epi32(reinterpret_cast<__m512i>(b), half);
  const __m512i high_to_low = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
  return reinterpret_cast<Pairs>(_mm512_mask_shuffle_epi8(second, 0x3333333333333333u, first, high_to_low));
}

// Weights of a group of queries for the keys of a block, as right operand (keys / 2, kColumns, 2), one part after the
// other.
struct Weights {
  std::uint16_t* data;
  std::int64_t part;
};

// A run of strips, which begins at key `from` of its block. The maximum rises only when it must by more than 8: weights
// stay below 2^8, and sums are rarely scaled (Zadouri et al. 2026). It is a whole number: what was summed before is
// scaled by a power of two, and no rounding tells in which strips keys came.
template <int kParts>
class Softmax {
 public:
  // `steps`: how often it will be called while the next strip's scores are multiplied.
  Softmax(std::int64_t steps, const Weights& weights, const Running& run, std::int64_t from)
      : pairs_a_step_(ceil_div(kForwardStrip / 2, steps)),
        weights_(weights),
        run_(run),
        begin_(weights.data + from * kColumns),
        strip_out_(begin_ - kStripSize) {
    for (int w = 0; w < kWidth; ++w) shrink_[w] = splat(1.f);
    set_base();
  }

  // The run's next strip: scores s (kForwardStrip, kColumns) · factor.
  void begin(const float* s, float factor) {
    strip_ = s, scale_ = factor, strip_out_ += kStripSize;
    set_limits();
    if (has_empty_lanes_) raise();
    rewind();
  }

  // Whether begin() reads the scores: lanes that saw no key yet need a maximum.
  bool looks_first() const { return has_empty_lanes_; }

  // Some of what is left.
  __attribute__((always_inline)) void operator()() {
    if (pairs_ > 0) work(pairs_a_step_);
  }

  // All of it. A strip with a score that is above its lane's maximum by more than 8, or NaN, is done again with a
  // maximum that has risen.
  void finish() {
    finish_pairs();
    if (below_ != 0xffff) raise(), rewind(), finish_pairs();
    for (int w = 0; w < kWidth; ++w)
      store(run_.sum + w * kLanes, load(run_.sum + w * kLanes) + sum_[w]), sum_[w] = Vec{};
    below_ = 0xffff;
  }

  // Shrinks what was summed before the run, where the maximum has risen.
  void scale(float* context, std::int64_t rows) const {
    for (int w = 0; shrinks_ && !run_.fresh && w < kWidth; ++w) {
      for (std::int64_t c = w * kLanes; c < rows * kColumns; c += kColumns)
        store(context + c, load(context + c) * shrink_[w]);
    }
  }

 private:
  static constexpr std::int64_t kStripSize = kForwardStrip * kColumns;
  static constexpr bool kFine = kParts > 1;

  static Vec ceil(Vec x) {
    return reinterpret_cast<Vec>(_mm512_maskz_roundscale_ps(0xffff, reinterpret_cast<__m512>(x), 0x0a));
  }

  void rewind() {
    s_ = strip_, out_ = strip_out_, pairs_ = kForwardStrip / 2, below_ = 0xffff;
    for (int w = 0; w < kWidth; ++w) sum_[w] = Vec{};
  }

  void set_limits() {
    for (int w = 0; w < kWidth; ++w) limit_[w] = (load(run_.maximum + w * kLanes) + splat(8.f)) * splat(1 / scale_);
  }

  void finish_pairs() {
    if (pairs_ > 0) work(pairs_);
  }

  // While every key is masked the maximum is -inf; subtracting 0 instead gives weights of 0, not NaN.
  void set_base() {
    has_empty_lanes_ = false;
    for (int w = 0; w < kWidth; ++w) {
      const Vec maximum = load(run_.maximum + w * kLanes);
      const VecI empty = maximum == splat(kMinusInfinity);
      has_empty_lanes_ = has_empty_lanes_ || any(empty);
      base_[w] = empty ? splat(0.f) : maximum;
    }
  }

  // Compares with the very limit that the loop takes, so that whether a lane rises does not depend on other lanes.
  void raise() {
    for (int w = 0; w < kWidth; ++w) {
      const Vec before = load(run_.maximum + w * kLanes);
      const Vec most = largest(strip_ + w * kLanes, kForwardStrip, splat(1.f));
      const VecI rises = most > limit_[w];
      if (!any(rises)) continue;
      const Vec after = rises ? ceil(most * splat(scale_)) : before;
      store(run_.maximum + w * kLanes, after);
      shrink(w, rises ? exp2_of<true>(before - after) : splat(1.f));
    }
    set_base();
    set_limits();
  }

  // The sum, the run's weights and, later, the context follow the maximum.
  void shrink(int w, Vec factor) {
    store(run_.sum + w * kLanes, load(run_.sum + w * kLanes) * factor);
    shrink_[w] *= factor;
    shrinks_ = true;
    for (int part = 0; part < kParts; ++part) {
      std::uint16_t* at = begin_ + part * weights_.part + w * 2 * kLanes;
      for (std::int64_t left = strip_out_ - begin_; left > 0; left -= 2 * kColumns, at += 2 * kColumns) {
        Pairs pair;
        __builtin_memcpy(&pair, at, sizeof pair);
        const Vec first = reinterpret_cast<Vec>(pair << 16) * factor;
        const Vec second = reinterpret_cast<Vec>(pair & 0xffff0000u) * factor;
        pair = reinterpret_cast<Pairs>(first) >> 16 | (reinterpret_cast<Pairs>(second) & 0xffff0000u);
        __builtin_memcpy(at, &pair, sizeof pair);
      }
    }
  }

  // Keeps in registers what the loop reads and writes: for all that the compiler knows, the stores may change this
  // object. Scores are compared with the limit: a maximum would wait for the one unit that multiplies beside the tiles.
  __attribute__((always_inline)) void work(std::int64_t pairs) {
    const float* s = s_;
    std::uint16_t* out = out_;
    const std::int64_t part = weights_.part;
    const Vec scale = splat(scale_);
    Vec base[kWidth], limit[kWidth], sum[kWidth];
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) base[w] = base_[w], limit[w] = limit_[w], sum[w] = sum_[w];
    __mmask16 below = below_;
    pairs = pairs < pairs_ ? pairs : pairs_;
    pairs_ -= pairs;
    for (; pairs > 0; --pairs, s += 2 * kColumns, out += 2 * kColumns) {
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        const Vec first = load(s + w * kLanes), second = load(s + kColumns + w * kLanes);
        below = below_limit(below_limit(below, first, limit[w]), second, limit[w]);
        const Vec a = exp2_of<kFine>(first * scale - base[w]), b = exp2_of<kFine>(second * scale - base[w]);
        sum[w] += a + b;
        put(a, b, out + w * 2 * kLanes, part);
      }
    }
    s_ = s, out_ = out, below_ = below;
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) sum_[w] = sum[w];
  }

  static __attribute__((always_inline)) __mmask16 below_limit(__mmask16 all, Vec x, Vec limit) {
    return _mm512_mask_cmp_ps_mask(all, reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(limit), _CMP_LE_OQ);
  }

  // All parts but the last are cut off, so that none has a sign; of three the last is exact.
  static __attribute__((always_inline)) void put(Vec first, Vec second, std::uint16_t* out, std::int64_t part) {
    ATTN_UNROLL for (int i = 0; i + 1 < kParts; ++i, out += part) {
      const Pairs high_first = reinterpret_cast<Pairs>(first) & 0xffff0000u;
      const Pairs high_second = reinterpret_cast<Pairs>(second) & 0xffff0000u;
      const Pairs high = high_first >> 16 | high_second;
      __builtin_memcpy(out, &high, sizeof high);
      first -= reinterpret_cast<Vec>(high_first), second -= reinterpret_cast<Vec>(high_second);
    }
    const Pairs last = interleaved(first, second);
    __builtin_memcpy(out, &last, sizeof last);
  }

  std::int64_t pairs_a_step_, pairs_ = 0;  // pairs of keys: to a step, and left of the strip
  const Weights& weights_;
  const Running& run_;
  std::uint16_t *begin_, *strip_out_, *out_ = nullptr;  // weights of the run, of the strip, and the next ones
  const float *strip_ = nullptr, *s_ = nullptr;         // scores of the strip, and the next ones
  float scale_ = 0;
  bool shrinks_ = false, has_empty_lanes_ = false;
  __mmask16 below_ = 0xffff;
  Vec base_[kWidth], limit_[kWidth], sum_[kWidth] = {}, shrink_[kWidth];
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
