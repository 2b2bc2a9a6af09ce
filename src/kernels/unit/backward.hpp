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
  std::int64_t partial;        // floats of a head's partial dq: by group of queries, (d, kColumns)

  explicit KeyPlan(const Problem& p) {
    // Each chunk costs a partial dq of all the query heads: fewer of them where key heads are shared.
    constexpr std::int64_t tasks_of_an_item = 32, floats_in_cache = 1 << 18;
    const std::int64_t most_chunks = p.hq == p.hkv ? 8 : 4;
    heads = p.hkv == 0 ? 0 : p.batch * p.hkv;
    std::int64_t wanted = tasks_of_an_item / (p.hkv == 0 ? 1 : p.hkv);
    wanted = wanted < 1 ? 1 : wanted > most_chunks ? most_chunks : wanted;
    chunk = up(p.tk, wanted) > 3 * kTileKeys ? up(up(p.tk, wanted), kTileKeys) * kTileKeys : 3 * kTileKeys;
    chunks = up(p.tk, chunk);
    const std::int64_t steps = up(chunk * (padded(p.d) + padded(p.dv)), floats_in_cache);
    step = up(up(chunk, steps), kTileKeys) * kTileKeys;
    partial = heads == 0 ? 0 : padded(rows_per_key_head(p)) * p.d;
  }

  static std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

  float* partial_dq(void* shared, std::int64_t chunk_index, std::int64_t head) const {
    return static_cast<float*>(shared) + (chunk_index * heads + head) * partial;
  }
};

struct BackwardScratch {
  Queries queries;
  TileScratch tile;
  float *weights, *d_scores;  // (kTileKeys, kTileStep)
  float *dk, *dv;             // by panel: (step, kColumns)
  float *keys, *values, *line;

  BackwardScratch(const Problem& p, const KeyPlan& plan, Carver& take) : queries(p, take), tile(p, take) {
    const bool widens = p.element != Element::f32;
    weights = take(kTileKeys * kTileStep), d_scores = take(kTileKeys * kTileStep);
    dk = take(plan.step * padded(p.d)), dv = take(plan.step * padded(p.dv));
    keys = take(widens ? plan.step * p.d : 0), values = take(widens ? plan.step * p.dv : 0);
    line = take(p.d > p.dv ? p.d : p.dv);
  }
};

// Keys [first, first + count) of a head, and the gradients that grow while the queries pass.
struct KeyStep {
  Block k, v;
  std::int64_t first, count;
};

// out (keys, panels · kColumns) += tileᵀ · rows: dv from the weights and d_output, dk from the scores' gradient and q.
inline void add_rows(const float* tile, std::int64_t keys, const float* rows, std::int64_t depth, std::int64_t width,
                     std::int64_t step, float* out) {
  for (std::int64_t c = 0; c < width; c += kColumns)
    panel<true>(keys, tile, kTileStep, 1, rows + c * kSpanRows, kColumns, out + c * step, kColumns, depth);
}

// A span of queries against keys [at, at + count) of the step.
inline void add_tile(const Problem& p, const KeyPlan& plan, const KeyStep& keys, std::int64_t at, std::int64_t count,
                     const BackwardScratch& mem, float* dq) {
  const std::int64_t first = keys.first + at;
  std::int64_t from[kSpanGroups], to[kSpanGroups], low = count, high = 0;
  int begin = kSpanGroups, end = 0;  // groups that see some of these keys
  for (int g = 0; g < mem.queries.groups; ++g) {
    const Range seen = seen_range(p, mem.queries.seen[g], first, count);
    from[g] = seen.from, to[g] = seen.from + seen.keys;
    if (seen.keys <= 0) {
      from[g] = to[g] = count;
      continue;
    }
    low = from[g] < low ? from[g] : low, high = to[g] > high ? to[g] : high;
    begin = g < begin ? g : begin, end = g + 1;
  }
  for (int g = begin; g < end; ++g) {
    float *weights = mem.weights + g * kColumns, *d_scores = mem.d_scores + g * kColumns;
    for (std::int64_t j = low; j < high; ++j) {
      if (j >= from[g] && j < to[g]) continue;
      clear(weights + j * kTileStep, kColumns), clear(d_scores + j * kTileStep, kColumns);
    }
    if (from[g] >= to[g]) continue;
    const Block k{keys.k.data + (at + from[g]) * keys.k.step, keys.k.step};
    const Block v{keys.v.data + (at + from[g]) * keys.v.step, keys.v.step};
    const std::int64_t seen = to[g] - from[g];
    gradient_tile<true>(p, mem.queries, g, k, v, first + from[g], seen, mem.tile, weights + from[g] * kTileStep,
                        d_scores + from[g] * kTileStep);
    // dqᵀ (d, queries) += kᵀ · d_scores
    panel<true>(p.d, k.data, 1, k.step, d_scores + from[g] * kTileStep, kTileStep, dq + g * p.d * kColumns, kColumns,
                seen);
  }
  if (begin >= end) return;
  const std::int64_t corner = low * kTileStep + begin * kColumns, depth = (end - begin) * kColumns;
  const std::int64_t rows = begin * kColumns * kColumns, out = (at + low) * kColumns;
  add_rows(mem.weights + corner, high - low, mem.queries.d_output_rows + rows, depth, p.dv, plan.step, mem.dv + out);
  add_rows(mem.d_scores + corner, high - low, mem.queries.q_rows + rows, depth, p.d, plan.step, mem.dk + out);
}

// The gradient of `count` rows of k or v, from panels of `step` rows.
inline void write_key_rows(const Problem& p, const Rows& out, std::int64_t width, const Span& span, const KeyStep& keys,
                           std::int64_t step, float factor, const float* panels, float* line) {
  for (std::int64_t j = 0; j < keys.count; ++j) {
    for (std::int64_t c = 0; c < width; ++c)
      line[c] = panels[c / kColumns * kColumns * step + j * kColumns + c % kColumns] * factor;
    narrow(p.element, line, row(out, p.element, span.batch, span.key_head, keys.first + j), width);
  }
}

inline void backward_keys(const Problem& p, const BackwardInput& in, const BackwardResult& result, const KeyPlan& plan,
                          std::int64_t task, void* shared, void* scratch) {
  Carver carver{static_cast<float*>(scratch)};
  BackwardScratch mem(p, plan, carver);
  // The first keys of every head first: under a causal mask they have the most queries.
  const std::int64_t chunk = task / plan.heads, head = task % plan.heads, rows = rows_per_key_head(p);
  Span span{head / p.hkv, head % p.hkv, 0, 0};
  float* dq = plan.partial_dq(shared, chunk, head);
  clear(dq, plan.partial);
  const std::int64_t last = (chunk + 1) * plan.chunk < p.tk ? (chunk + 1) * plan.chunk : p.tk;
  for (std::int64_t first = chunk * plan.chunk; first < last; first += plan.step) {
    const std::int64_t count = last - first < plan.step ? last - first : plan.step;
    const KeyStep keys{block_of(p, p.k, p.d, span, first, count, mem.keys),
                       block_of(p, p.v, p.dv, span, first, count, mem.values), first, count};
    clear(mem.dk, plan.step * padded(p.d)), clear(mem.dv, plan.step * padded(p.dv));
    for (span.row = 0; span.row < rows; span.row += kSpanRows) {
      span.rows = rows - span.row < kSpanRows ? rows - span.row : kSpanRows;
      if (!place(p, span, first, first + count, mem.queries)) continue;
      pack(p, in, mem.queries);
      const auto next = [&](std::int64_t from) {
        return next_run(p, mem.queries.seen, mem.queries.groups, first, {0, count}, 1, from);
      };
      for (Range run = next(0); run.keys > 0; run = next(run.from + run.keys)) {
        const std::int64_t end = run.from + run.keys;
        for (std::int64_t at = run.from; at < end; at += kTileKeys) {
          const std::int64_t tile = end - at < kTileKeys ? end - at : kTileKeys;
          add_tile(p, plan, keys, at, tile, mem, dq + span.row * p.d);
        }
      }
    }
    write_key_rows(p, result.k, p.d, span, keys, plan.step, p.scale, mem.dk, mem.line);
    write_key_rows(p, result.v, p.dv, span, keys, plan.step, 1, mem.dv, mem.line);
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
      const float* part = plan.partial_dq(shared, chunk, head) + (span.row + first) * p.d;
      for (std::int64_t i = 0; i < p.d * kColumns; i += kLanes) store(sum + i, load(sum + i) + load(part + i));
    }
    for (int lane = 0; lane < kColumns && first + lane < span.rows; ++lane) {
      const Query at = query(p, span, first + lane);
      for (std::int64_t c = 0; c < p.d; ++c) line[c] = sum[c * kColumns + lane] * p.scale;
      narrow(p.element, line, row(result.q, p.element, span.batch, at.head, at.token), p.d);
    }
  }
}

inline std::size_t backward_shared(const Problem& p) {
  const KeyPlan plan(p);
  return static_cast<std::size_t>(plan.chunks * plan.heads * plan.partial) * sizeof(float);
}

inline std::size_t backward_scratch(const Problem& p) {
  Carver carver{nullptr};
  const BackwardScratch keys(p, KeyPlan(p), carver);
  Carver bias{nullptr}, queries{nullptr};
  const BiasScratch mem(p, bias);
  queries(p.d * kColumns), queries(p.d);
  std::int64_t most = carver.used > bias.used ? carver.used : bias.used;
  most = most > queries.used ? most : queries.used;
  return static_cast<std::size_t>(most) * sizeof(float);
}

inline std::int64_t backward_tasks(const Problem& p, const BackwardResult& result, int phase) {
  const KeyPlan plan(p);
  if (phase == 1) return task_count(p);
  return plan.heads * plan.chunks + bias_task_count(p, result);
}

inline void backward(const Problem& p, const BackwardInput& in, const BackwardResult& result, int phase,
                     std::int64_t task, void* shared, void* scratch) {
  const KeyPlan plan(p);
  const std::int64_t key_tasks = plan.heads * plan.chunks;
  if (phase == 1) return backward_queries(p, result, plan, task, shared, scratch);
  if (task < key_tasks) return backward_keys(p, in, result, plan, task, shared, scratch);
  backward_bias(p, in, result, task - key_tasks, scratch);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
