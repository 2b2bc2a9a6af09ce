// Fused backward: weights are computed again from the log-sum-exp (Dao 2023, FlashAttention-2, section 3.1).
//
// Phase 0: what every query needs, a task a span of them.
// Phase 1: a task takes a chunk of a key head's keys and goes over all its queries. dk and dv stay in the task's
// scratch; dq goes to a partial sum, one for every chunk, in memory shared by the tasks. Then the bias's tasks.
// Phase 2: a task adds up the partial sums of a span of queries, in the chunks' order. A query that sees none of a
// chunk's keys has no partial sum there. With a window most queries see one chunk or two, and a causal mask hides half.
// Where a head's keys are one chunk, and its dq is not large, its task does the work of phase 2 too, and of phase 0
// unless the bias needs that. Where there are many threads, the steps of a chunk are tasks that pass over the queries
// one behind the other.
#pragma once

#include <sched.h>

#include "kernels/attention/bias_gradient.hpp"
#include "kernels/attention/gradient_tile.hpp"
#include "kernels/attention/write_rows.hpp"
#include "kernels/simd/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// A task's keys are [first, last) of a head, in the chunk that begins at `chunk`. The first keys of every head come
// first: under a causal mask they have the most queries.
struct Keys {
  std::int64_t head, chunk, first, last;
};

inline Keys keys_of(const Problem& p, const BackwardPlan& plan, std::int64_t task) {
  const std::int64_t of_head = task / plan.heads, chunk = of_head % plan.chunks * plan.chunk;
  const std::int64_t first = chunk + of_head / plan.chunks * plan.step;
  const std::int64_t end = least_of(chunk + plan.chunk, p.tk);
  return {task % plan.heads, chunk, first, plan.steps_apart ? least_of(first + plan.step, end) : end};
}

// All tasks share this.
struct BackwardShared {
  RowSums sums;
  float* partials;       // of dq, by chunk and head
  std::int64_t* passed;  // with steps apart, by task: rows of queries that have passed its keys

  BackwardShared(const Problem& p, const BackwardPlan& plan, Workspace& take) : sums(p, take) {
    partials = take(plan.whole_heads ? 0 : plan.chunks * plan.heads * plan.partial);
    passed = reinterpret_cast<std::int64_t*>(take(plan.steps_apart ? 2 * plan.key_tasks : 0));
  }

  // Waits until `rows` have passed the keys of the step before. That one was begun earlier, by a thread that goes on.
  void wait(const BackwardPlan& plan, std::int64_t task, std::int64_t rows) const {
    constexpr int most_spins = 1000;  // some 10 µs
    const std::int64_t* before = passed + task - plan.heads * plan.chunks;
    for (int spins = 0; __atomic_load_n(before, __ATOMIC_ACQUIRE) < rows; ++spins) {
      if (spins > most_spins) sched_yield();
    }
  }

  void pass(const BackwardPlan& plan, std::int64_t task, std::int64_t rows) const {
    if (plan.steps_apart) __atomic_store_n(passed + task, rows, __ATOMIC_RELEASE);
  }

  float* dq(const BackwardPlan& plan, std::int64_t chunk, std::int64_t head) const {
    return partials + (chunk * plan.heads + head) * plan.partial;
  }
};

template <GradientCore Core>
struct BackwardScratch {
  Core core;
  Queries queries;
  TileScratch tile;
  float *dk, *dv;  // by panel: (step, kColumns)
  float* dq;       // of a whole head, laid out as a partial sum
  float *line, *lines;
  bool fresh[Core::kSpanGroups];  // no gradient of a group's dq yet

  BackwardScratch(const Problem& p, const BackwardPlan& plan, Workspace& take)
      : core(p, plan.step, take), queries(span_rows<Core>(), take), tile(p, Core::kStripKeys, take) {
    dk = take(plan.step * padded(p.d)), dv = take(plan.step * padded(p.dv));
    dq = take(plan.whole_heads ? plan.partial + kLanes * kColumns : 0);  // read by whole squares
    line = take(2 * padded(p.d > p.dv ? p.d : p.dv)), lines = take(kColumns * padded(p.d));
  }
};

// A span of queries against `count` keys from key `at` of a tile on, which itself begins at key `tile_at` of those that
// the core holds, and these at key `first`. Adds to dk and dv; `done`: the keys of the tile that dq has then to take.
template <GradientCore Core>
inline void add_strip(const Problem& p, const BackwardPlan& plan, std::int64_t first, std::int64_t tile_at,
                      std::int64_t at, std::int64_t count, BackwardScratch<Core>& mem,
                      Range (&done)[Core::kSpanGroups]) {
  const std::int64_t whole = round_up(count, Core::kKeyStep);
  std::int64_t low = count, high = 0;
  Groups groups{Core::kSpanGroups, 0};  // those that see some of these keys
  for (int g = 0; g < mem.queries.groups; ++g) {
    const Range seen = seen_range(p, mem.queries.seen[g], first + tile_at + at, count);
    if (seen.keys <= 0) {
      mem.core.put_zeros(g, at, whole);
      continue;
    }
    const std::int64_t from = seen.from / Core::kKeyStep * Core::kKeyStep,
                       to = round_up(seen.from + seen.keys, Core::kKeyStep);
    low = from < low ? from : low, high = to > high ? to : high;
    groups = {g < groups.begin ? g : groups.begin, g + 1};
    mem.core.put_zeros(g, at, from), mem.core.put_zeros(g, at + to, whole - to);
    put_tile(mem.core, p, mem.queries, g, first, tile_at + at + count, {tile_at + at + from, to - from}, mem.tile,
             at + from);
    if (done[g].keys == 0) done[g].from = at + from;
    done[g].keys = at + to - done[g].from;
  }
  if (groups.begin >= groups.end) return;
  const std::int64_t row = tile_at + at + low;
  mem.core.add_dv(groups, at + low, high - low, plan.step, mem.dv + row * kColumns);
  mem.core.add_dk(groups, at + low, high - low, plan.step, mem.dk + row * kColumns);
}

// A span of queries against keys [at, at + count) of those that the core holds, which begin at key `first`.
template <GradientCore Core>
inline void add_tile(const Problem& p, const BackwardPlan& plan, std::int64_t first, std::int64_t at,
                     std::int64_t count, BackwardScratch<Core>& mem, float* dq) {
  Range done[Core::kSpanGroups] = {};
  for (std::int64_t strip = 0; strip < count; strip += Core::kStripKeys) {
    const std::int64_t keys = count - strip < Core::kStripKeys ? count - strip : Core::kStripKeys;
    add_strip(p, plan, first, at, strip, keys, mem, done);
  }
  for (int g = 0; g < mem.queries.groups; ++g) {
    if (done[g].keys == 0) continue;
    mem.core.add_dq(g, at + done[g].from, done[g].from, done[g].keys, mem.fresh[g], dq + g * plan.width * kColumns);
    mem.fresh[g] = false;
  }
}

// A span's queries against the `count` keys that the core holds from key `first` on.
template <GradientCore Core>
inline void add_span(const Problem& p, const BackwardInput& in, const RowSums& sums, const BackwardPlan& plan,
                     std::int64_t first, std::int64_t count, BackwardScratch<Core>& mem, float* dq) {
  pack(p, sums, mem.queries);
  mem.core.pack_queries(in, mem.queries);
  const auto next = [&](std::int64_t from) {
    return next_run(p, mem.queries.seen, mem.queries.groups, first, {0, count}, Core::kKeyStep, from);
  };
  for (Range run = next(0); run.keys > 0; run = next(run.from + run.keys)) {
    const std::int64_t end = run.from + run.keys;
    for (std::int64_t at = run.from; at < end; at += Core::kTileKeys) {
      const std::int64_t tile = end - at < Core::kTileKeys ? end - at : Core::kTileKeys;
      add_tile(p, plan, first, at, tile, mem, dq);
    }
  }
}

// The gradient of `count` rows of k or v, from panels of `step` rows.
inline void write_key_rows(const Problem& p, const BackwardResult& result, const Rows& out, std::int64_t width,
                           const Span& span, std::int64_t first, std::int64_t count, std::int64_t step, float factor,
                           const float* panels, float* line) {
  RowWriter write(result.element, p.batch * p.hkv * p.tk * width, result.finite);
  for (std::int64_t j = 0; j < count; ++j) {
    for (std::int64_t c = 0; c < width; c += kLanes) {
      const float* panel = panels + c / kColumns * kColumns * step + c % kColumns;
      store(line + c, load(panel + j * kColumns) * splat(factor));
    }
    write(line, row(out, result.element, span.batch, span.key_head, first + j), width);
  }
}

// A group's dq, (width, kColumns), by queries: (kColumns, step).
inline void to_rows(const float* sum, std::int64_t width, float factor, float* rows, std::int64_t step) {
  for (std::int64_t c = 0; c < width; c += kLanes) {
    for (int w = 0; w < kColumns; w += kLanes) {
      Vec square[kLanes];
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) square[i] = load(sum + (c + i) * kColumns + w) * splat(factor);
      transpose(square);
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) store(rows + (w + i) * step + c, square[i]);
    }
  }
}

// The group of a span that begins at row `first`: `sum` as above, by way of lines (kColumns, d).
inline void write_query_rows(const Problem& p, const BackwardResult& result, const Span& span, std::int64_t first,
                             const float* sum, float* lines) {
  RowWriter write(result.element, p.batch * p.hq * p.tq * p.d, result.finite);
  const std::int64_t step = padded(p.d);
  to_rows(sum, p.d, p.scale, lines, step);
  for (int lane = 0; lane < kColumns && first + lane < span.rows; ++lane) {
    const Query at = query(p, span, first + lane);
    write(lines + lane * step, row(result.q, result.element, span.batch, at.head, at.token), p.d);
  }
}

// The span of a key head that begins at a row.
template <GradientCore Core>
inline Span span_at(const Problem& p, std::int64_t head, std::int64_t row) {
  const std::int64_t left = rows_per_key_head(p) - row;
  return {head / p.hkv, head % p.hkv, row, left < span_rows<Core>() ? left : span_rows<Core>()};
}

// Brings to L2, beside a span's products, what is packed after them: the next span, and keys where these change too.
template <GradientCore Core>
inline void fetch_next(const Problem& p, const BackwardInput& in, const BackwardPlan& plan, const Span& span,
                       std::int64_t next_key, std::int64_t task, std::int64_t cells, Core& core) {
  PrefetchRows ahead;
  Keys keys = keys_of(p, plan, task);
  std::int64_t next_row = span.row + span.rows;
  if (next_row == rows_per_key_head(p)) {
    next_row = 0, keys.first = next_key;
    if (next_key == keys.last) {
      if (task + 1 == plan.key_tasks) return core.fetch(ahead, cells);
      keys = keys_of(p, plan, task + 1);
    }
    const std::int64_t left = keys.last - keys.first, count = left < plan.step ? left : plan.step;
    ahead.add(p, p.k, keys.head / p.hkv, keys.head % p.hkv, keys.first, count, p.d);
    ahead.add(p, p.v, keys.head / p.hkv, keys.head % p.hkv, keys.first, count, p.dv);
  }
  const Span next = span_at<Core>(p, keys.head, next_row);
  const Query at = query(p, next, 0);
  const std::int64_t rows = p.tq - at.token < next.rows ? p.tq - at.token : next.rows;
  ahead.add(p, p.q, next.batch, at.head, at.token, rows, p.d);
  ahead.add(p, in.d_output, next.batch, at.head, at.token, rows, p.dv);
  if (plan.whole_heads) ahead.add(p, in.output, next.batch, at.head, at.token, rows, p.dv);
  core.fetch(ahead, cells);
}

// Keys of [first, first + count) that each group of queries sees, in all.
inline std::int64_t keys_seen(const Problem& p, const Queries& queries, std::int64_t first, std::int64_t count) {
  std::int64_t keys = 0;
  for (int g = 0; g < queries.groups; ++g) {
    const Range seen = seen_range(p, queries.seen[g], first, count);
    keys += seen.keys > 0 ? seen.keys : 0;
  }
  return keys;
}

// Whether the chunk that begins at a key has a partial sum of the group of a span that begins at row `from`.
inline bool has_partial(const Problem& p, const BackwardPlan& plan, std::int64_t chunk, const Span& span,
                        std::int64_t from) {
  return may_see(p, span, from, kColumns, chunk, chunk + plan.chunk);
}

template <GradientCore Core>
inline void backward_keys(const Problem& p, const BackwardInput& in, const BackwardResult& result,
                          const BackwardPlan& plan, const BackwardShared& shared, std::int64_t task, void* scratch) {
  Workspace memory{static_cast<float*>(scratch)};
  BackwardScratch<Core> mem(p, plan, memory);
  const auto [head, chunk, begin, last] = keys_of(p, plan, task);
  if (result.distances) {
    const std::int64_t item = chunk / plan.chunk * p.batch + head / p.hkv;
    mem.tile.distances = result.distances + item * p.hq * p.distances.head;
  }
  float* whole_dq = plan.whole_heads ? mem.dq : shared.dq(plan, chunk / plan.chunk, head);
  for (std::int64_t first = begin; first < last; first += plan.step) {
    const std::int64_t count = last - first < plan.step ? last - first : plan.step;
    Span span = span_at<Core>(p, head, 0);
    mem.core.load_keys(span, first, count);
    clear(mem.dk, plan.step * padded(p.d)), clear(mem.dv, plan.step * padded(p.dv));
    for (; span.rows > 0; span = span_at<Core>(p, head, span.row + span.rows)) {
      float* dq = whole_dq + span.row * plan.width;
      if (first == begin && plan.sums_rows_itself) sum_rows(p, in, span, shared.sums, mem.line);
      for (bool& fresh : mem.fresh) fresh = first == chunk;
      if (begin > chunk) shared.wait(plan, task, span.row + span.rows);
      if (may_see(p, span, 0, span.rows, first, first + count) && place(p, span, first, first + count, mem.queries)) {
        fetch_next(p, in, plan, span, first + count, task, keys_seen(p, mem.queries, first, count), mem.core);
        add_span(p, in, shared.sums, plan, first, count, mem, dq);
      }
      const bool is_whole = plan.whole_heads && first + count == last;
      for (int g = 0; g < groups_of(span); ++g, dq += plan.width * kColumns) {
        if (mem.fresh[g] && (plan.whole_heads || has_partial(p, plan, chunk, span, g * kColumns)))
          clear(dq, plan.width * kColumns);
        if (is_whole) write_query_rows(p, result, span, g * kColumns, dq, mem.lines);
      }
      shared.pass(plan, task, span.row + span.rows);
    }
    write_key_rows(p, result, result.k, p.d, span, first, count, plan.step, p.scale, mem.dk, mem.line);
    write_key_rows(p, result, result.v, p.dv, span, first, count, plan.step, 1, mem.dv, mem.line);
  }
}

inline void backward_queries(const Problem& p, const BackwardResult& result, const BackwardPlan& plan,
                             const BackwardShared& shared, std::int64_t task, void* scratch) {
  Workspace take{static_cast<float*>(scratch)};
  const std::int64_t step = padded(p.d);
  float *sum = take(step * kColumns), *lines = take(kColumns * step);
  const Span span = locate(p, plan.queries, task);
  const std::int64_t head = span.batch * p.hkv + span.key_head;
  for (std::int64_t first = 0; first < span.rows; first += kColumns) {
    clear(sum, step * kColumns);
    bool any = false;
    for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      if (!has_partial(p, plan, chunk * plan.chunk, span, first)) continue;
      const float* part = shared.dq(plan, chunk, head) + (span.row + first) * plan.width;
      for (std::int64_t i = 0; i < p.d * kColumns; i += kLanes) {
        store(sum + i, any ? load(sum + i) + load(part + i) : load(part + i));  // 0 + -0 would be 0
      }
      any = true;
    }
    write_query_rows(p, result, span, first, sum, lines);
  }
}

inline std::size_t backward_shared(const Problem& p, const BackwardPlan& plan) {
  return bytes_of<BackwardShared>(p, plan);
}

template <GradientCore Core>
inline std::size_t backward_scratch(const Problem& p, const BackwardPlan& plan) {
  Workspace queries{nullptr}, rows{nullptr};
  queries(2 * padded(p.d) * kColumns), rows(2 * p.dv);
  const std::size_t sizes[] = {bytes_of<BackwardScratch<Core>>(p, plan), bytes_of<BiasScratch<Core>>(p),
                               queries.bytes(), rows.bytes()};
  std::size_t most = 0;
  for (const std::size_t size : sizes) most = most > size ? most : size;
  return most;
}

template <GradientCore Core>
inline void run_backward(const Problem& p, const BackwardPlan& plan, const BackwardInput& in,
                         const BackwardResult& result, int phase, std::int64_t task, void* shared_memory,
                         void* scratch) {
  Workspace memory{static_cast<float*>(shared_memory)};
  const BackwardShared shared(p, plan, memory);
  if (phase == 0) {
    for (std::int64_t i = task; plan.steps_apart && i < plan.key_tasks; i += plan.tasks[0]) shared.passed[i] = 0;
    return sum_rows(p, in, locate(p, plan.queries, task), shared.sums, static_cast<float*>(scratch));
  }
  if (phase == 2) return backward_queries(p, result, plan, shared, task, scratch);
  if (task < plan.key_tasks) return backward_keys<Core>(p, in, result, plan, shared, task, scratch);
  backward_bias<Core>(p, plan.bias, in, result, shared.sums, task - plan.key_tasks, scratch);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
