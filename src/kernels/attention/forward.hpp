// The algorithm of the fused forward: online softmax over blocks of keys (Milakov and Gimelshein 2018; Dao et al.
// 2022), for any Core that multiplies. A Core holds the packed operands of a task and offers
//   kKeyStep                          keys a product takes at once: a range of keys begins and ends at a multiple
//   pack_queries(span, group)
//   load_block(span, first, count)    keys and values [first, first + count), zeros up to the next kKeyStep
//   scores(group, from, keys, s)      s (keys, kColumns), from key `from` of the block on; returns the factor that
//                                     is still missing
//   store_weights(s, j, w, weights)   weights of keys j to j + kKeyRows - 1, lanes w to w + kLanes - 1
//   keep(s, j, w, kept)               forget the weights of key j, lanes w to w + kLanes - 1, whose bits are not set
//   add_context(from, keys, s, context)
#pragma once

#include "kernels/attention/dropout.hpp"
#include "kernels/attention/scores.hpp"
#include "kernels/attention/write_rows.hpp"
#include "kernels/simd/transpose.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// A group's running state, each (…, kColumns).
struct Running {
  float *maximum, *sum;  // 1 row each: the score that is subtracted, and Σ 2^(s - maximum)
  float* context;        // dv rows, made up to a multiple of 16: Σ 2^(s - maximum) · v
};

inline void clear(const Running& run, std::int64_t rows) {
  for (int lane = 0; lane < kColumns; ++lane) run.maximum[lane] = kMinusInfinity, run.sum[lane] = 0;
  for (std::int64_t i = 0; i < rows * kColumns; i += kLanes) store(run.context + i, splat(0.f));
}

// A sink is a score that was met before any key. A maximum is a whole number where softmax wants it so
// (bf16/softmax.hpp).
inline void start_with_sinks(const Problem& p, const Interval& seen, const Running& run) {
  for (int lane = 0; lane < kColumns; ++lane) {
    const float sink = p.sinks[seen.head[lane]] * kLog2e, maximum = __builtin_ceilf(sink);
    run.maximum[lane] = maximum;
    run.sum[lane] = sink == kMinusInfinity ? 0 : sink == maximum ? 1 : __builtin_exp2f(sink - maximum);
  }
}

// The largest of keys rows of s, and of `before`, in kLanes lanes.
inline Vec largest(const float* s, std::int64_t keys, Vec factor) {
  constexpr int kChains = 4;
  Vec most[kChains];
  ATTN_UNROLL for (int i = 0; i < kChains; ++i) most[i] = splat(kMinusInfinity);
  const std::int64_t whole = keys / kChains * kChains;
  for (std::int64_t j = 0; j < whole; j += kChains) {
    ATTN_UNROLL for (int i = 0; i < kChains; ++i) most[i] = max(load(s + (j + i) * kColumns), most[i]);
  }
  for (std::int64_t j = whole; j < keys; ++j) most[0] = max(load(s + j * kColumns), most[0]);
  return max(max(most[0], most[1]), max(most[2], most[3])) * factor;
}

// s · factor becomes weights 2^(s · factor - maximum), and the core keeps them; the sum, of weights in float32,
// and the context follow the maximum's rise. The maximum rises only when it must by more than 8: the weights stay
// below 2^8, and the context is rarely scaled (Zadouri et al. 2026). Each lane decides for itself, and a lane
// that does not rise is scaled by exactly 1: no row depends on its neighbours.
template <class Core>
inline void softmax_tile(Core& core, float* s, std::int64_t keys, float factor, const Running& run, std::int64_t rows) {
  const Vec scale = splat(factor);
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec before = load(run.maximum + w), most = largest(s + w, keys, scale);
    const Vec after = most > before + splat(8.f) ? most : before;
    // While every key is masked the maximum is -inf; subtracting 0 instead gives weights of 0, not NaN.
    const Vec base = after == splat(kMinusInfinity) ? splat(0.f) : after;
    Vec sum = splat(0.f);
    for (std::int64_t j = 0; j < keys; j += Core::kKeyRows) {
      Vec weights[Core::kKeyRows];
      ATTN_UNROLL for (int i = 0; i < Core::kKeyRows; ++i) {
        weights[i] = exp2_nonpositive(load(s + (j + i) * kColumns + w) * scale - base);
        sum += weights[i];
      }
      core.store_weights(s, j, w, weights);
    }
    const Vec shrink = exp2_nonpositive(before - base);
    store(run.maximum + w, after);
    store(run.sum + w, load(run.sum + w) * shrink + sum);
    if (!any(shrink != splat(1.f))) continue;
    for (std::int64_t c = 0; c < rows; ++c)
      store(run.context + c * kColumns + w, load(run.context + c * kColumns + w) * shrink);
  }
}

// lines (kColumns, rows): the context, divided by the sums.
inline void finish_context(const Running& run, float factor, std::int64_t rows, float* lines) {
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec sum = load(run.sum + w);
    const Vec inverse = load(run.maximum + w) == splat(kMinusInfinity) ? splat(0.f) : splat(factor) / sum;
    for (std::int64_t c = 0; c < rows; c += kLanes) {
      Vec square[kLanes];
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) square[i] = load(run.context + (c + i) * kColumns + w) * inverse;
      transpose(square);
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) store(lines + (w + i) * rows + c, square[i]);
    }
  }
}

// Writes a group's rows; the log-sum-exp of a row that is not finite becomes NaN, for the caller to see.
inline void write_group(const Problem& p, const ForwardResult& result, const Span& span, int group, const Running& run,
                        std::int64_t rows, float* lines) {
  RowWriter write(result.element, p.batch * p.hq * p.tq * p.dv, nullptr);
  finish_context(run, drops(p) ? p.dropout_factor : 1, rows, lines);
  for (int lane = 0; lane < kColumns && group * kColumns + lane < span.rows; ++lane) {
    const Query at = query(p, span, group * kColumns + lane);
    const float* line = lines + lane * rows;
    Vec zeros = splat(0.f);  // NaN once a context is not finite
    for (std::int64_t c = 0; c < rows; c += kLanes) zeros += load(line + c) * splat(0.f);
    write(line, row(result.output, result.element, span.batch, at.head, at.token), p.dv);
    const float sum = run.sum[lane], most = run.maximum[lane];
    result.lse[(span.batch * p.hq + at.head) * result.lse_head + at.token] =
        most == kMinusInfinity ? kMinusInfinity : (most + __builtin_log2f(sum)) * kLn2 + sum_lanes(zeros);
  }
}

inline int groups_of(const Span& span) { return static_cast<int>((span.rows + kColumns - 1) / kColumns); }

// Begins all of a task's groups: contexts of `mem`, queries packed. Returns the keys that some group sees.
template <class Scratch>
inline Range start(const Problem& p, const Span& span, Scratch& mem, Running* run, Interval* seen) {
  std::int64_t begin = p.tk, end = 0;
  for (int g = 0; g < groups_of(span); ++g) {
    run[g] = {mem.maximum + g * kColumns, mem.sum + g * kColumns, mem.context + g * mem.rows * kColumns};
    clear(run[g], mem.rows);
    seen[g] = interval(p, span, g);
    if (p.sinks) start_with_sinks(p, seen[g], run[g]);
    if (seen[g].any_first < begin) begin = seen[g].any_first;
    if (seen[g].any_last > end) end = seen[g].any_last;
    mem.core.pack_queries(span, g);
  }
  return {begin, end - begin};
}

// The keys of a block that some lane of a group sees by its interval.
inline Range visible(const Interval& seen, std::int64_t first, std::int64_t count, std::int64_t step) {
  const std::int64_t from = seen.any_first > first ? seen.any_first - first : 0;
  const std::int64_t to = seen.any_last < first + count ? seen.any_last - first : count;
  if (from >= to) return {0, 0};
  return {from / step * step, round_up(to, step) - from / step * step};
}

template <class Core>
struct OnlineScratch {
  Core core;
  float *context, *maximum, *sum, *s, *lines;
  std::int64_t rows;  // of a context

  OnlineScratch(const Problem& p, Workspace& take) : core(p, take), rows(round_up(p.dv, 16)) {
    context = take(kGroups * rows * kColumns);
    maximum = take(kTaskRows), sum = take(kTaskRows);
    s = take(Core::kBlockKeys * kColumns);
    lines = take(rows * kColumns);
  }
};

template <class Core>
inline void online_forward(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, std::int64_t task,
                           void* scratch) {
  Workspace take{static_cast<float*>(scratch)};
  OnlineScratch<Core> mem(p, take);
  const Span span = locate(p, plan.queries, task);
  Running run[kGroups];
  Interval seen[kGroups];
  const Range whole = start(p, span, mem, run, seen);
  for (std::int64_t first = whole.from / Core::kBlockKeys * Core::kBlockKeys; first < whole.from + whole.keys;
       first += Core::kBlockKeys) {
    const std::int64_t count = p.tk - first < Core::kBlockKeys ? p.tk - first : Core::kBlockKeys;
    bool loaded = false;
    for (int g = 0; g < groups_of(span); ++g) {
      const Range all = visible(seen[g], first, count, Core::kKeyStep);
      const auto next = [&](std::int64_t from) { return next_run(p, &seen[g], 1, first, all, Core::kKeyStep, from); };
      for (Range range = next(all.from); range.keys > 0; range = next(range.from + range.keys)) {
        if (!loaded) mem.core.load_block(span, first, count), loaded = true;
        const float factor = capped_scores(mem.core, p, g, range, mem.s);
        mask_range(p, span, g, seen[g], first, count, range, mem.s);
        softmax_tile(mem.core, mem.s, range.keys, factor, run[g], mem.rows);
        if (drops(p)) {
          const std::int64_t left = count - range.from, keys = range.keys < left ? range.keys : left;
          for_each_kept(p, span, g, seen[g], first + range.from, keys,
                        [&](std::int64_t j, int w, VecI kept) { mem.core.keep(mem.s, j, w, kept); });
        }
        mem.core.add_context(range.from, range.keys, mem.s, run[g].context);
      }
    }
  }
  for (int g = 0; g < groups_of(span); ++g) write_group(p, result, span, g, run[g], mem.rows, mem.lines);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
