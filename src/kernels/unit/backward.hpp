// Fused backward: weights are computed again from the log-sum-exp (Dao 2023, FlashAttention-2, section 3.1).
//
// Phase 0: a task takes a chunk of a key head's keys and goes over all its queries. dk and dv stay in the task's
// scratch; dq goes to a partial sum, one for every chunk, in memory shared by the tasks. Then the bias's tasks.
// Phase 1: a task adds up the partial sums of a span of queries, in the chunks' order.
#pragma once

#include "kernels/unit/bias_gradient.hpp"
#include "kernels/unit/gradient_tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// How the keys are cut: by the sizes of one batch item alone.
struct KeyPlan {
  std::int64_t chunk, chunks;  // keys of a task; tasks of a key head
  std::int64_t step;           // keys whose k, v, dk and dv stay in L2 while the queries pass
  std::int64_t heads;          // (batch, key head) pairs
  std::int64_t width;          // rows of a group's dqᵀ
  std::int64_t partial;        // floats of a head's partial dq: by group of queries, (width, kColumns)

  KeyPlan(const Problem& p, std::int64_t row_step) : width(round_up(p.d, row_step)) {
    // Each chunk costs a partial dq of all the query heads: fewer of them where key heads are shared.
    constexpr std::int64_t tasks_of_an_item = 32, floats_in_cache = 1 << 18;
    const std::int64_t most_chunks = p.hq == p.hkv ? 8 : 4;
    heads = p.hkv == 0 ? 0 : p.batch * p.hkv;
    std::int64_t wanted = tasks_of_an_item / (p.hkv == 0 ? 1 : p.hkv);
    wanted = wanted < 1 ? 1 : wanted > most_chunks ? most_chunks : wanted;
    chunk = ceil_div(p.tk, wanted) > 3 * kTileKeys ? ceil_div(ceil_div(p.tk, wanted), kTileKeys) * kTileKeys
                                                   : 3 * kTileKeys;
    chunks = ceil_div(p.tk, chunk);
    const std::int64_t steps = ceil_div(chunk * (padded(p.d) + padded(p.dv)), floats_in_cache);
    step = ceil_div(ceil_div(chunk, steps), kTileKeys) * kTileKeys;
    partial = heads == 0 ? 0 : padded(rows_per_key_head(p)) * width;
  }

  float* partial_dq(void* shared, std::int64_t chunk_index, std::int64_t head) const {
    return static_cast<float*>(shared) + (chunk_index * heads + head) * partial;
  }
};

template <class Core>
struct BackwardScratch {
  Core core;
  Queries queries;
  TileScratch tile;
  float *dk, *dv;  // by panel: (step, kColumns)
  float* line;

  BackwardScratch(const Problem& p, const KeyPlan& plan, Carver& take)
      : core(p, plan.step, take), queries(p, take), tile(p, take) {
    dk = take(plan.step * padded(p.d)), dv = take(plan.step * padded(p.dv));
    line = take(p.d > p.dv ? p.d : p.dv);
  }
};

// A span of queries against keys [at, at + count) of those that the core holds, which begin at key `first`.
template <class Core>
inline void add_tile(const Problem& p, const KeyPlan& plan, std::int64_t first, std::int64_t at, std::int64_t count,
                     BackwardScratch<Core>& mem, float* dq) {
  std::int64_t from[kSpanGroups], to[kSpanGroups], low = count, high = 0;
  Groups groups{kSpanGroups, 0};  // those that see some of these keys
  for (int g = 0; g < mem.queries.groups; ++g) {
    const Range seen = seen_range(p, mem.queries.seen[g], first + at, count);
    from[g] = to[g] = 0;
    if (seen.keys <= 0) continue;
    from[g] = seen.from / Core::kKeyStep * Core::kKeyStep, to[g] = round_up(seen.from + seen.keys, Core::kKeyStep);
    low = from[g] < low ? from[g] : low, high = to[g] > high ? to[g] : high;
    groups = {g < groups.begin ? g : groups.begin, g + 1};
  }
  for (int g = groups.begin; g < groups.end; ++g) {
    if (from[g] == to[g]) {
      mem.core.forget(g, low, high - low);
      continue;
    }
    mem.core.forget(g, low, from[g] - low), mem.core.forget(g, to[g], high - to[g]);
    const std::int64_t keys = to[g] - from[g];
    gradient_tile<true>(mem.core, p, mem.queries, g, first, at + count, {at + from[g], keys}, mem.tile);
    mem.core.put(g, from[g], keys, mem.tile);
    mem.core.add_dq(g, at + from[g], from[g], keys, dq + g * plan.width * kColumns);
  }
  if (groups.begin >= groups.end) return;
  mem.core.add_dv(groups, low, high - low, plan.step, mem.dv + (at + low) * kColumns);
  mem.core.add_dk(groups, low, high - low, plan.step, mem.dk + (at + low) * kColumns);
}

// The gradient of `count` rows of k or v, from panels of `step` rows.
inline void write_key_rows(const Problem& p, const Rows& out, std::int64_t width, const Span& span, std::int64_t first,
                           std::int64_t count, std::int64_t step, float factor, const float* panels, float* line) {
  for (std::int64_t j = 0; j < count; ++j) {
    for (std::int64_t c = 0; c < width; ++c)
      line[c] = panels[c / kColumns * kColumns * step + j * kColumns + c % kColumns] * factor;
    narrow(p.element, line, row(out, p.element, span.batch, span.key_head, first + j), width);
  }
}

template <class Core>
inline void backward_keys(const Problem& p, const BackwardInput& in, const BackwardResult& result, const KeyPlan& plan,
                          std::int64_t task, void* shared, void* scratch) {
  Carver carver{static_cast<float*>(scratch)};
  BackwardScratch<Core> mem(p, plan, carver);
  // The first keys of every head first: under a causal mask they have the most queries.
  const std::int64_t chunk = task / plan.heads, head = task % plan.heads, rows = rows_per_key_head(p);
  Span span{head / p.hkv, head % p.hkv, 0, 0};
  float* dq = plan.partial_dq(shared, chunk, head);
  clear(dq, plan.partial);
  const std::int64_t last = (chunk + 1) * plan.chunk < p.tk ? (chunk + 1) * plan.chunk : p.tk;
  for (std::int64_t first = chunk * plan.chunk; first < last; first += plan.step) {
    const std::int64_t count = last - first < plan.step ? last - first : plan.step;
    mem.core.load_keys(span, first, count);
    clear(mem.dk, plan.step * padded(p.d)), clear(mem.dv, plan.step * padded(p.dv));
    for (span.row = 0; span.row < rows; span.row += kSpanRows) {
      span.rows = rows - span.row < kSpanRows ? rows - span.row : kSpanRows;
      if (!place(p, span, first, first + count, mem.queries)) continue;
      pack(p, in, mem.queries);
      mem.core.pack_queries(in, mem.queries);
      const auto next = [&](std::int64_t from) {
        return next_run(p, mem.queries.seen, mem.queries.groups, first, {0, count}, Core::kKeyStep, from);
      };
      for (Range run = next(0); run.keys > 0; run = next(run.from + run.keys)) {
        const std::int64_t end = run.from + run.keys;
        for (std::int64_t at = run.from; at < end; at += kTileKeys) {
          const std::int64_t tile = end - at < kTileKeys ? end - at : kTileKeys;
          add_tile(p, plan, first, at, tile, mem, dq + span.row * plan.width);
        }
      }
    }
    write_key_rows(p, result.k, p.d, span, first, count, plan.step, p.scale, mem.dk, mem.line);
    write_key_rows(p, result.v, p.dv, span, first, count, plan.step, 1, mem.dv, mem.line);
  }
}

inline void backward_queries(const Problem& p, const BackwardResult& result, const KeyPlan& plan, std::int64_t task,
                             void* shared, void* scratch) {
  Carver take{static_cast<float*>(scratch)};
  float *sum = take(p.d * kColumns), *line = take(p.d);
  const Span span = locate(p, task);
  const std::int64_t head = span.batch * p.hkv + span.key_head;
  for (std::int64_t first = 0; first < span.rows; first += kColumns) {
    clear(sum, p.d * kColumns);
    for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      const float* part = plan.partial_dq(shared, chunk, head) + (span.row + first) * plan.width;
      for (std::int64_t i = 0; i < p.d * kColumns; i += kLanes) store(sum + i, load(sum + i) + load(part + i));
    }
    for (int lane = 0; lane < kColumns && first + lane < span.rows; ++lane) {
      const Query at = query(p, span, first + lane);
      for (std::int64_t c = 0; c < p.d; ++c) line[c] = sum[c * kColumns + lane] * p.scale;
      narrow(p.element, line, row(result.q, p.element, span.batch, at.head, at.token), p.d);
    }
  }
}

template <class Core>
inline std::size_t backward_shared(const Problem& p) {
  const KeyPlan plan(p, Core::kRowStep);
  return static_cast<std::size_t>(plan.chunks * plan.heads * plan.partial) * sizeof(float);
}

template <class Core>
inline std::size_t backward_scratch(const Problem& p) {
  Carver carver{nullptr};
  const BackwardScratch<Core> keys(p, KeyPlan(p, Core::kRowStep), carver);
  Carver bias{nullptr}, queries{nullptr};
  const BiasScratch<Core> mem(p, bias);
  queries(p.d * kColumns), queries(p.d);
  std::int64_t most = carver.used > bias.used ? carver.used : bias.used;
  most = most > queries.used ? most : queries.used;
  return static_cast<std::size_t>(most) * sizeof(float);
}

template <class Core>
inline std::int64_t backward_tasks(const Problem& p, const BackwardResult& result, int phase) {
  const KeyPlan plan(p, Core::kRowStep);
  if (phase == 1) return task_count(p);
  return plan.heads * plan.chunks + bias_task_count(p, result);
}

template <class Core>
inline void run_backward(const Problem& p, const BackwardInput& in, const BackwardResult& result, int phase,
                         std::int64_t task, void* shared, void* scratch) {
  const KeyPlan plan(p, Core::kRowStep);
  const std::int64_t key_tasks = plan.heads * plan.chunks;
  if (phase == 1) return backward_queries(p, result, plan, task, shared, scratch);
  if (task < key_tasks) return backward_keys<Core>(p, in, result, plan, task, shared, scratch);
  backward_bias<Core>(p, in, result, task - key_tasks, scratch);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
