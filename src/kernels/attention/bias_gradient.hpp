// The gradient of an additive bias: the scores' gradient, summed over whatever the bias was broadcast to.
//
// The tasks share out the elements of the bias, not those of the scores: each computes again the scores that its
// elements were added to, in a fixed order, so no two tasks write one element and no t² memory is needed.
#pragma once

#include "kernels/attention/gradient_tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

template <GradientCore Core>
struct BiasScratch {
  Core core;
  Queries queries;
  TileScratch tile;

  BiasScratch(const Problem& p, Workspace& take)
      : core(p, Core::kStripKeys, take), queries(span_rows<Core>(), take), tile(p, Core::kStripKeys, take) {}
};

// Adds a group's tile. A repeated dimension is summed within the tile first: fewer roundings in the long sum.
inline void add_to_bias(const Problem& p, const BackwardResult& result, const Queries& queries, int group,
                        std::int64_t first_key, std::int64_t keys, const float* d_scores) {
  const Span& span = queries.span;
  const std::int64_t left = span.rows - group * kColumns, lanes = left < kColumns ? left : kColumns;
  const Query start = query(p, span, group * kColumns);  // a span of one head
  float* out = result.bias + span.batch * result.bias_batch + start.head * result.bias_head +
               start.token * result.bias_query + first_key * result.bias_key;
  if (result.bias_query) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      float sum = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        const float d_score = d_scores[j * kColumns + lane];
        result.bias_key ? out[lane * result.bias_query + j * result.bias_key] += d_score : sum += d_score;
      }
      if (!result.bias_key) out[lane * result.bias_query] += sum;
    }
    return;
  }
  float total = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    float sum = 0;
    for (std::int64_t lane = 0; lane < lanes; ++lane) sum += d_scores[j * kColumns + lane];
    result.bias_key ? out[j * result.bias_key] += sum : total += sum;
  }
  if (!result.bias_key) *out += total;
}

// A span of one head's queries against keys [first, last).
template <GradientCore Core>
inline void add_span_to_bias(const Problem& p, const BackwardInput& in, const BackwardResult& result,
                             const RowSums& sums, const Span& span, std::int64_t first, std::int64_t last,
                             BiasScratch<Core>& mem) {
  if (!place(p, span, first, last, mem.queries)) return;
  pack(p, sums, mem.queries);
  mem.core.pack_queries(in, mem.queries);
  for (; first < last; first += Core::kStripKeys) {
    const std::int64_t count = last - first < Core::kStripKeys ? last - first : Core::kStripKeys;
    mem.core.load_keys(span, first, count);
    for (int g = 0; g < mem.queries.groups; ++g) {
      if (!sees_some(p, mem.queries.seen[g], first, first + count)) continue;
      gradient_tile<false>(mem.core, p, mem.queries, g, first, count, {0, round_up(count, Core::kKeyStep)}, mem.tile,
                           InTile<Core>{mem.tile}, 0);
      add_to_bias(p, result, mem.queries, g, first, count, mem.tile.d_weights);
    }
  }
}

template <GradientCore Core>
inline void backward_bias(const Problem& p, const BiasPlan& plan, const BackwardInput& in, const BackwardResult& result,
                          const RowSums& sums, std::int64_t task, void* scratch) {
  Workspace memory{static_cast<float*>(scratch)};
  BiasScratch<Core> mem(p, memory);
  // This task's range of a dimension of `size`, `length` to a task; all of it where the bias repeats.
  const auto range = [&](std::int64_t& begin, std::int64_t& end, std::int64_t stride, std::int64_t tasks,
                         std::int64_t length, std::int64_t size) {
    begin = stride ? task % tasks * length : 0;
    end = stride && begin + length < size ? begin + length : size;
    task /= tasks;
  };
  std::int64_t key, last_key, token, last_token, head, last_head, batch, last_batch;
  range(key, last_key, result.bias_key, plan.keys, plan.task_keys, p.tk);
  range(token, last_token, result.bias_query, plan.queries, span_rows<Core>(), p.tq);
  range(head, last_head, result.bias_head, plan.heads, 1, p.hq);
  range(batch, last_batch, result.bias_batch, plan.batches, 1, p.batch);
  const std::int64_t group = p.hq / p.hkv;
  for (std::int64_t b = batch; b < last_batch; ++b) {
    for (std::int64_t h = head; h < last_head; ++h) {
      for (std::int64_t t = token; t < last_token; t += span_rows<Core>()) {
        const std::int64_t rows = last_token - t < span_rows<Core>() ? last_token - t : span_rows<Core>();
        add_span_to_bias(p, in, result, sums, {b, h / group, h % group * p.tq + t, rows}, key, last_key, mem);
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
