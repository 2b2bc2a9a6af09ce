// The fused forward on bf16 products, with softmax beside them. A group of queries goes over a block of keys by strips:
// while the scores of a strip are multiplied, the strip before becomes weights, rounded to bf16 or split in parts. Then
// the block's values are added. Sums of weights are taken in float32 before the rounding.
#pragma once

#include "kernels/attention/forward.hpp"
#include "kernels/bf16/softmax.hpp"
#include "kernels/prefetch.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

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

// Whether softmax takes a strip's scores as they come: nothing is added to them, and all lanes see all keys.
inline bool stand(const Problem& p, const QueryTile& seen, std::int64_t first, std::int64_t count, const Range& strip) {
  return !adjusts(p) && !masks_cells(p) && strip.from + strip.keys <= count && seen.all_first <= first + strip.from &&
         first + strip.from + strip.keys <= seen.all_last;
}

template <int kParts>
class MatrixForward {
 public:
  static constexpr int kKeyStep = kForwardStrip;

  MatrixForward(const Problem& p, const ForwardPlan& plan, void* shared, Workspace& take)
      : p_(p),
        factor_(query_factor(p)),
        block_keys_(plan.block_keys),
        depth_(round_up(p.d, 32)),
        blocks_(p, plan, shared) {
    blocks_.take_memory(take);
    queries_ = halves(take, kGroups * kParts * depth_ * kColumns);
    for (float*& strip : scores_) strip = take(kForwardStrip * kColumns);
    weights_ = {halves(take, kParts * block_keys_ * kColumns), block_keys_ * kColumns};
  }

  void pack_queries(const Span& span, int group) {
    for (int half = 0; half < kColumns; half += kLanes) {
      const void* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const std::int64_t r = group * kColumns + half + i;
        const Query at = query(p_, span, r < span.rows ? r : 0);
        rows[i] = r < span.rows ? row(p_.q, p_.element, span.batch, at.head, at.token) : nullptr;
      }
      pack_columns(p_.element, rows, p_.d, factor_.packed, {kParts, depth_ * kColumns}, queries_of(group) + 2 * half,
                   depth_);
    }
  }

  // The block that begins at a key is the one that is worked on; beside it the next one is fetched.
  void load_block(const Span& span, const KeyBlock& keys) {
    const std::int64_t block = keys.first / block_keys_;
    blocks_.pack_own(span, block);
    keys_ = blocks_.keys(span, block), values_ = blocks_.values(span, block);
    fetch_ = blocks_.fetch(span, block + 1, groups_of(span) * block_keys_ / kForwardStrip * steps_a_strip());
  }

  // The rows that the next task will pack are fetched beside this one's products: where they are few, so that reading
  // them takes part of its time.
  void fetch_rows_of(const Span& span) {
    if (!kWorksBeside || blocks_.shares() || p_.tk > kTaskRows) return;
    fetch_rows(p_, all_keys(p_), span, 0, p_.tk, ahead_);
    const Query begin = query(p_, span, 0);
    ahead_.add(p_, p_.q, span.batch, begin.head, begin.token, least_of(p_.tq - begin.token, span.rows), p_.d);
    fetch_rows(p_, all_values(p_), span, 0, p_.tk, ahead_);
    ahead_.spread_over(groups_of(span) * ceil_div(p_.tk, kForwardStrip) * steps_a_strip());
  }

  // Attends in two strips of scores that take turns. Scores that stand are in memory once the next products have begun;
  // beside the rest of these they become weights.
  void attend(const Span& span, int group, const QueryTile& tile, const KeyBlock& block, const Range& range,
              Running& run) {
    Softmax<kParts> softmax(steps_a_strip(), weights_, run, range.from);
    for (std::int64_t from = range.from; from < range.from + range.keys; from += kForwardStrip) {
      float* s = scores_[from / kForwardStrip % 2];
      const Range strip{from, kForwardStrip};
      multiply_keys(group, from, s, softmax);
      softmax.finish();
      float factor = factor_.rest;
      if (softmax.looks_first() || !stand(p_, tile, block.first, block.count, strip)) {
        finish();
        factor = cap_scores(p_, kForwardStrip, factor, s);
        mask_range(p_, span, group, tile, block.first, block.count, strip, s);
      }
      softmax.begin(s, factor);
    }
    finish();
    softmax.finish();
    if (drops(p_)) drop_weights(span, group, tile, block, range);
    softmax.scale(run.context, round_up(p_.dv, 16));
    begin_context(run, round_up(p_.dv, 16));
    add_values(range, run.context);
  }

  // Makes sure that all sums that were multiplied are in memory.
  void finish() { waiting_.finish(); }

 private:
  static constexpr int kProducts = products_of(kParts);

  // Steps of a strip's scores, between which softmax may take its turns.
  std::int64_t steps_a_strip() const { return kProducts * depth_ / 32; }

  // s (kForwardStrip, kColumns), from key `from` of the block on, with something to do beside. They are in memory when
  // that is first called beside the next, or after finish().
  template <class Beside>
  void multiply_keys(int group, std::int64_t from, float* s, Beside& beside) {
    const auto fetching = [&] { fetch_(), ahead_(), beside(); };
    const Left left{keys_.data + from * keys_.row, keys_.row, keys_.part};
    multiply_in_turn<kProducts, false>(kForwardStrip, left, {queries_of(group), depth_ * kColumns}, s,
                                       round_up(p_.d, kDepthStep) / 2, fetching, waiting_);
  }

  void drop_weights(const Span& span, int group, const QueryTile& tile, const KeyBlock& block, const Range& range) {
    for_each_kept(p_, span, group, tile, block.first + range.from, least_of(range.keys, block.count - range.from),
                  [&](std::int64_t j, int w, VecI kept) { drop(weights_, range.from + j, w, kept); });
  }

  // Clears the weights of key j, lanes w to w + kLanes - 1, whose bits are not set. A lane holds two keys' weights; the
  // other one stays.
  static void drop(const Weights& weights, std::int64_t j, int w, VecI kept) {
    const VecI other = splat(static_cast<std::int32_t>(j % 2 == 0 ? 0xffff0000u : 0x0000ffffu));
    const __mmask32 dropped = _mm512_movepi16_mask(reinterpret_cast<__m512i>(~(kept | other)));
    ATTN_UNROLL for (int part = 0; part < kParts; ++part) {
      std::uint16_t* at = weights.data + part * weights.part + j / 2 * 2 * kColumns + 2 * w;
      _mm512_mask_storeu_epi16(at, dropped, _mm512_setzero_si512());
    }
  }

  // contextᵀ (dv, queries) += vᵀ · weights; whole after the next scores, or finish().
  void add_values(const Range& range, float* context) {
    auto sums = prefetch_sums<kProducts>(context + 32 * kColumns, round_up(p_.dv, kRowStep) - 32, range.keys / 2);
    const auto ahead = [&] { sums(), ahead_(); };
    multiply_in_turn<kProducts, true>(round_up(p_.dv, kRowStep), {values_.data + range.from, values_.row, values_.part},
                                      {weights_.data + range.from * kColumns, weights_.part}, context, range.keys / 2,
                                      ahead, waiting_);
  }

  std::uint16_t* queries_of(int group) const { return queries_ + group * kParts * depth_ * kColumns; }

  const Problem& p_;
  Factor factor_;
  std::int64_t block_keys_, depth_;  // of a block; of packed queries
  PackedBlocks blocks_;
  std::uint16_t* queries_;
  float* scores_[2];
  Weights weights_;
  Left keys_{}, values_{};
  PrefetchBlock fetch_;
  PrefetchRows ahead_;
  Waiting waiting_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
