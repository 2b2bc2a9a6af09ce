// The fused forward in float32: broadcasts of keys and values, read in place where they are float32, against lanes of
// queries.
#pragma once

#include "kernels/attention/forward.hpp"
#include "kernels/attention/key_rows.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kBlockKeys = 128;

class FloatForward {
 public:
  static constexpr int kKeyStep = 1;

  FloatForward(const Problem& p, const ForwardPlan& plan, void*, Workspace& take)
      : p_(p), context_rows_(round_up(p.dv, 16)) {
    const bool copies = p.element != Element::f32 || p.pages;
    queries_ = take(kGroups * p.d * kColumns);
    keys_buffer_ = take(copies ? plan.block_keys * p.d : 0);
    values_buffer_ = take(copies ? plan.block_keys * p.dv : 0);
    lines_ = take(kLanes * round_up(p.d, kLanes));
    scores_ = take(plan.block_keys * kColumns);
  }

  void pack_queries(const Span& span, int group) {
    pack_lanes(p_, p_.q, p_.d, span, group, query_factor(p_), lines_, queries_ + group * p_.d * kColumns);
  }

  // The next task's rows, beside this one's products. Of many keys the next block's are fetched instead.
  void fetch_rows_of(const Span& span) {
    if (!has_few_keys()) return;
    ahead_ = {};
    fetch_rows(p_, all_keys(p_), span, 0, p_.tk, ahead_);
    const Query begin = query(p_, span, 0);
    ahead_.add(p_, p_.q, span.batch, begin.head, begin.token, least_of(p_.tq - begin.token, span.rows), p_.d);
    fetch_rows(p_, all_values(p_), span, 0, p_.tk, ahead_);
    ahead_.spread_over(kBlockKeys);
  }

  void load_block(const Span& span, const KeyBlock& block) {
    keys_ = block_of(p_, all_keys(p_), span, block.first, block.count, keys_buffer_);
    values_ = block_of(p_, all_values(p_), span, block.first, block.count, values_buffer_);
    if (!has_few_keys()) fetch_block(span, block.first + kBlockKeys);
  }

  // The queries were scaled when packed: scores lack no factor.
  void attend(const Span& span, int group, const QueryTile& tile, const KeyBlock& block, const Range& range,
              Running& run) {
    multiply_keys(group, range);
    cap_scores(p_, range.keys, 1, scores_);
    mask_range(p_, span, group, tile, block.first, block.count, range, scores_);
    softmax_tile(scores_, range.keys, 1, run, context_rows_);
    if (drops(p_)) drop_weights(span, group, tile, block, range);
    begin_context(run, context_rows_);
    add_values(range, run.context);
  }

  void finish() {}

 private:
  // Each row is then read for few others, so that reading takes part of a task's time.
  bool has_few_keys() const { return p_.tk <= kTaskRows; }

  // Keys and values of the block from a key on, beside the first of this block's products: loads shall not wait.
  void fetch_block(const Span& span, std::int64_t first) {
    if (first >= p_.tk) return;
    const std::int64_t count = least_of(p_.tk - first, kBlockKeys);
    ahead_ = {};
    fetch_rows(p_, all_keys(p_), span, first, count, ahead_);
    fetch_rows(p_, all_values(p_), span, first, count, ahead_);
    ahead_.spread_over(kBlockKeys);
  }

  // scores (keys, kColumns) = k · qᵀ
  void multiply_keys(int group, const Range& range) {
    panel<false>(range.keys, keys_.data + range.from * keys_.step, keys_.step, 1, queries_ + group * p_.d * kColumns,
                 kColumns, scores_, kColumns, p_.d, ahead_);
  }

  void drop_weights(const Span& span, int group, const QueryTile& tile, const KeyBlock& block, const Range& range) {
    for_each_kept(p_, span, group, tile, block.first + range.from, least_of(range.keys, block.count - range.from),
                  [this](std::int64_t j, int w, VecI kept) {
                    float* at = scores_ + j * kColumns + w;
                    store(at, where(kept, load(at)));
                  });
  }

  // contextᵀ (dv, queries) += vᵀ · weights
  void add_values(const Range& range, float* context) {
    panel<true>(p_.dv, values_.data + range.from * values_.step, 1, values_.step, scores_, kColumns, context, kColumns,
                range.keys, ahead_);
  }

  const Problem& p_;
  std::int64_t context_rows_;
  float *queries_, *keys_buffer_, *values_buffer_, *lines_, *scores_;
  Block keys_{}, values_{};
  PrefetchRows ahead_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
