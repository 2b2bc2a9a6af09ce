// The fused forward: online softmax over blocks of keys (Dao et al. 2022), for any core that multiplies.
#pragma once

#include "kernels/attention/dropout.hpp"
#include "kernels/attention/mask.hpp"
#include "kernels/attention/softmax.hpp"
#include "kernels/attention/write_rows.hpp"
#include "kernels/simd/transpose.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// lines (kColumns, rows): the context, divided by the sums; zeros where no key was seen, whose context may be 0 · NaN
// of hidden values.
inline void finish_context(const Running& run, float factor, std::int64_t rows, float* lines) {
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec sum = load(run.sum + w), inverse = splat(factor) / sum;
    const VecI seen = sum != splat(0.f);  // NaN too
    for (std::int64_t c = 0; c < rows; c += kLanes) {
      Vec square[kLanes];
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) {
        square[i] = where(seen, load(run.context + (c + i) * kColumns + w) * inverse);
      }
      transpose(square);
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) store(lines + (w + i) * rows + c, square[i]);
    }
  }
}

// Writes a group's rows.
inline void write_group(const Problem& p, const ForwardResult& result, const Span& span, int group, const Running& run,
                        std::int64_t rows, float* lines) {
  RowWriter write(result.element, p.batch * p.hq * p.tq * p.dv, result.finite);
  finish_context(run, drops(p) ? p.dropout.factor : 1, rows, lines);
  for (int lane = 0; lane < kColumns && group * kColumns + lane < span.rows; ++lane) {
    const Query at = query(p, span, group * kColumns + lane);
    write(lines + lane * rows, row(result.output, result.element, span.batch, at.head, at.token), p.dv);
    const float lse = write_log_sum_exp(p, result, span, at, run.maximum[lane], run.sum[lane]);
    if (!is_sound(p, at, lse)) write.tell();
  }
}

// Begins all of a task's groups: contexts of `mem`, queries packed. Returns the keys that some group sees.
template <class Scratch>
inline Range start(const Problem& p, const Span& span, Scratch& mem, Running* run, QueryTile* seen) {
  std::int64_t begin = p.tk, end = 0;
  for (int g = 0; g < groups_of(span); ++g) {
    run[g] = {mem.maximum + g * kColumns, mem.sum + g * kColumns, mem.context + g * mem.rows * kColumns};
    clear(run[g]);
    locate_queries(p, span, g, seen[g]);
    if (p.sinks) start_with_sinks(p, seen[g], run[g]);
    if (seen[g].any_first < begin) begin = seen[g].any_first;
    if (seen[g].any_last > end) end = seen[g].any_last;
    mem.core.pack_queries(span, g);
  }
  return {begin, end - begin};
}

// The keys of a block that some lane of a group sees by its interval.
inline Range visible(const QueryTile& seen, std::int64_t first, std::int64_t count, std::int64_t step) {
  const std::int64_t from = seen.any_first > first ? seen.any_first - first : 0;
  const std::int64_t to = seen.any_last < first + count ? seen.any_last - first : count;
  if (from >= to) return {0, 0};
  return {from / step * step, round_up(to, step) - from / step * step};
}

// All rows of a group are NaN: nothing more can come of them.
inline bool is_lost(const Span& span, int group, const Running& run) {
  for (int lane = 0; lane < kColumns && group * kColumns + lane < span.rows; ++lane) {
    if (run.sum[lane] == run.sum[lane]) return false;
  }
  return true;
}

// `count` keys from key `first` on.
struct KeyBlock {
  std::int64_t first, count;
};

// Holds the operands of a task, packed as its products take them.
template <class Core>
concept ForwardCore = requires(Core core, const Span& span, int group, const QueryTile& tile, const KeyBlock& block,
                               const Range& range, Running& run) {
  Core::kKeyStep;  // keys a product takes at once: a range begins and ends at a multiple
  core.pack_queries(span, group);
  core.fetch_rows_of(span);      // of the task that comes next, beside this one's products
  core.load_block(span, block);  // keys and values, zeros up to the next kKeyStep
  // A group against a range of the block's keys: scores, softcap, mask, softmax, dropout, context.
  core.attend(span, group, tile, block, range, run);
  core.finish();  // all contexts are in memory
};

template <ForwardCore Core>
struct ForwardScratch {
  Core core;
  std::int64_t rows;  // of a context
  float *context, *maximum, *sum, *lines;

  ForwardScratch(const Problem& p, const ForwardPlan& plan, void* shared, Workspace& take)
      : core(p, plan, shared, take), rows(round_up(p.dv, 16)) {
    context = take(kGroups * rows * kColumns);
    maximum = take(kTaskRows), sum = take(kTaskRows);
    lines = take(rows * kColumns);
  }
};

// A task's queries pass over the keys that some of them see, block by block; a block serves all groups while it is in
// cache, and is loaded when the first of them sees a key of it.
template <ForwardCore Core>
inline void forward_task(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, std::int64_t task,
                         void* shared, void* scratch) {
  Workspace take{static_cast<float*>(scratch)};
  ForwardScratch<Core> mem(p, plan, shared, take);
  const Span span = locate(p, plan.queries, task);
  Running run[kGroups];
  QueryTile tiles[kGroups];
  const Range whole = start(p, span, mem, run, tiles);
  if (task + 1 < plan.tasks[1]) mem.core.fetch_rows_of(locate(p, plan.queries, task + 1));
  const std::int64_t step = plan.block_keys, end = whole.from + whole.keys;
  for (std::int64_t first = whole.from / step * step; first < end; first += step) {
    const KeyBlock block{first, least_of(p.tk - first, step)};
    bool loaded = false;
    for (int g = 0; g < groups_of(span); ++g) {
      if (is_lost(span, g, run[g])) continue;
      const Range all = visible(tiles[g], first, block.count, Core::kKeyStep);
      const auto next = [&](std::int64_t from) { return next_run(p, &tiles[g], 1, first, all, Core::kKeyStep, from); };
      for (Range range = next(all.from); range.keys > 0; range = next(range.from + range.keys)) {
        if (!loaded) mem.core.load_block(span, block), loaded = true;
        mem.core.attend(span, g, tiles[g], block, range, run[g]);
      }
    }
  }
  mem.core.finish();
  for (int g = 0; g < groups_of(span); ++g) {
    begin_context(run[g], mem.rows);
    write_group(p, result, span, g, run[g], mem.rows, mem.lines);
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
