// The fused forward on bf16 products, with softmax beside them. A group of queries goes over a block of keys by strips:
// while the scores of a strip are multiplied, the strip before becomes weights. Then the block's values are added.
#pragma once

#include "kernels/bf16/packed_blocks.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

template <int kParts>
struct ForwardScratch {
  MatrixCore<kParts> core;
  float *context, *maximum, *sum, *s[2], *lines;
  Weights weights;
  std::int64_t rows;  // of a context

  ForwardScratch(const Problem& p, const ForwardPlan& plan, void* shared, Workspace& take)
      : core(p, plan, shared, take), rows(round_up(p.dv, 16)) {
    context = take(kGroups * rows * kColumns);
    maximum = take(kTaskRows), sum = take(kTaskRows);
    for (float*& strip : s) strip = take(kForwardStrip * kColumns);
    weights = core.weights(take);
    lines = take(rows * kColumns);
  }
};

// Whether softmax takes a strip's scores as they come: nothing is added to them, and all lanes see all keys.
inline bool stand(const Problem& p, const Interval& seen, std::int64_t first, std::int64_t count, const Range& strip) {
  return !adjusts(p) && !p.keep.data && !p.blocks.data && strip.from + strip.keys <= count &&
         seen.all_first <= first + strip.from && first + strip.from + strip.keys <= seen.all_last;
}

// A group against a range of a block's keys, in two strips of scores that take turns. Scores that stand are in memory
// once the next products have begun; beside the rest of these they become weights.
template <int kParts>
inline void add_range(const Problem& p, const Span& span, int group, const Interval& seen, std::int64_t first,
                      std::int64_t count, const Range& range, const Running& run, ForwardScratch<kParts>& mem) {
  const Weights& weights = mem.weights;
  Softmax<kParts> softmax(mem.core.steps_a_strip(), weights, run, range.from);
  for (std::int64_t from = range.from; from < range.from + range.keys; from += kForwardStrip) {
    float* s = mem.s[from / kForwardStrip % 2];
    const Range strip{from, kForwardStrip};
    mem.core.scores(group, from, s, softmax);
    softmax.finish();
    float factor = mem.core.factor();
    if (softmax.looks_first() || !stand(p, seen, first, count, strip)) {
      mem.core.finish();
      factor = cap_scores(p, kForwardStrip, factor, s);
      mask_range(p, span, group, seen, first, count, strip, s);
    }
    softmax.begin(s, factor);
  }
  mem.core.finish();
  softmax.finish();
  if (drops(p)) {
    const std::int64_t left = count - range.from, keys = range.keys < left ? range.keys : left;
    for_each_kept(p, span, group, seen, first + range.from, keys, [&](std::int64_t j, int w, VecI kept) {
      MatrixCore<kParts>::keep(weights, range.from + j, w, kept);
    });
  }
  softmax.scale(run.context, mem.rows);
  mem.core.add_values(weights, range, run.context);
}

template <int kParts>
inline void forward_task(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, std::int64_t task,
                         void* shared, void* scratch) {
  Workspace take{static_cast<float*>(scratch)};
  ForwardScratch<kParts> mem(p, plan, shared, take);
  const Span span = locate(p, plan.queries, task);
  Running run[kGroups];
  Interval seen[kGroups];
  const Range whole = start(p, span, mem, run, seen);
  if (task + 1 < plan.tasks[1]) mem.core.fetch_rows_of(locate(p, plan.queries, task + 1));
  const std::int64_t keys = plan.block_keys;
  for (std::int64_t first = whole.from / keys * keys; first < whole.from + whole.keys; first += keys) {
    const std::int64_t count = p.tk - first < keys ? p.tk - first : keys;
    bool taken = false;
    for (int g = 0; g < groups_of(span); ++g) {
      const Range all = visible(seen[g], first, count, kForwardStrip);
      const auto next = [&](std::int64_t from) { return next_run(p, &seen[g], 1, first, all, kForwardStrip, from); };
      for (Range range = next(all.from); range.keys > 0; range = next(range.from + range.keys)) {
        if (!taken) mem.core.take_block(span, first), taken = true;
        add_range<kParts>(p, span, g, seen[g], first, count, range, run[g], mem);
      }
    }
  }
  mem.core.finish();
  for (int g = 0; g < groups_of(span); ++g) write_group(p, result, span, g, run[g], mem.rows, mem.lines);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
