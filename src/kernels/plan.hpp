// How a call is computed: everything that is decided, decided once, in ordinary C++. Kernels are handed the plan and
// derive nothing again; callers and tests ask it, and it gives its reasons.
//
// The sizes of one batch item alone decide all that may change a result's bits, its number of key heads among them:
// that sets into how many chunks the backward pass cuts the keys. The batch and `threads` decide only how work is
// shared out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/problem.hpp"
#include "kernels/product/problem.hpp"

namespace attn::kernels {

struct ForwardFunctions;
struct BackwardFunctions;
struct ProductFunctions;
struct FewRowsFunctions;
struct Kernels;

// These kinds of kernels multiply.
enum class Family : std::uint8_t {
  float_tiles,   // multiply-adds of float32, queries across the lanes
  bf16_tiles,    // products of bf16 parts
  float_decode,  // few queries: multiply-adds of float32, keys and values as they are stored
  int8_decode    // few queries: products of bytes
};

constexpr int kMostPhases = 3;

// All plans tell this. A call is cut into tasks that can run in any order (BackwardPlan::steps_apart: that are begun in
// order) and on any thread; all tasks of a phase must be done before the next phase begins.
struct Plan {
  const char* isa;
  Family family;
  int parts;           // that a number is split into, of bf16_tiles: 1, 2 or 3
  const char* reason;  // for the family
  int phases;
  std::int64_t tasks[kMostPhases];
  std::size_t shared;   // bytes of one block of memory for the whole call, which needs no clearing
  std::size_t scratch;  // bytes of each running task's own; both are aligned to 64
  int columns;          // of a tile: queries that are computed together, or numbers of a product's row
  // For many threads, in what order tasks are begun: heads of phase 1 that take turns, so that the longest tasks of all
  // come first (0: head after head); and of several plans, those of most keys.
  std::int64_t turns, keys;

  // The number of the task that is begun as the i-th of a phase.
  std::int64_t begun(int phase, std::int64_t i) const {
    return phase == 1 && turns > 1 ? i % turns * (tasks[1] / turns) + i / turns : i;
  }

  // Products of parts to a product of two numbers.
  int products() const { return parts * (parts + 1) / 2; }
};

// How the queries of a key head are cut.
struct QueryTasks {
  std::int64_t rows, per_head;  // of a task; tasks of a key head
};

struct ForwardPlan : Plan {
  const ForwardFunctions* kernel;
  // These are for tiles.
  QueryTasks queries;
  std::int64_t block_keys;   // keys of a block, which all queries of a task pass
  std::int64_t blocks;       // of a key head
  std::int64_t packed_keys;  // of a block of packed keys, made up
  bool packs_first;          // keys and values are packed for all tasks, in phase 0; else by the tasks
  // These are for decode.
  std::int64_t chunk_keys, chunks;  // keys of a task; tasks of a key head, merged in phase 1

  bool decodes() const { return family == Family::float_decode || family == Family::int8_decode; }
};

// How tasks share the elements of a bias's gradient: 1 where the bias repeats, and a task goes over all of it.
struct BiasPlan {
  std::int64_t batches, heads, queries, keys;
  std::int64_t task_keys;  // of a task
};

struct BackwardPlan : Plan {
  const BackwardFunctions* kernel;
  QueryTasks queries;          // of phases 0 and 2
  std::int64_t heads;          // (batch, key head) pairs
  std::int64_t chunk, chunks;  // keys whose dq is one partial sum; such chunks of a key head
  std::int64_t step;           // keys whose k, v, dk and dv stay in L2 while the queries pass
  // Tasks of phase 1 but for the bias's: a chunk each or, for many threads, a step of one. Steps of a chunk add to one
  // partial sum in order: each waits for the one before at every span of queries, and so is begun after it.
  std::int64_t key_tasks;
  bool steps_apart;
  std::int64_t span_rows;  // of queries that pass keys at once
  std::int64_t width;      // rows of a group's dqᵀ
  std::int64_t partial;    // floats of a head's partial dq: by group of queries, (width, columns)
  bool whole_heads;        // a task has all keys of a head, and room for its dq: it does phase 2
  bool sums_rows_itself;   // and phase 0
  BiasPlan bias;
};

struct ProductPlan : Plan {
  const ProductFunctions* kernel;
  std::int64_t depth;                   // that is taken at once: a block
  std::int64_t task_rows, task_panels;  // of a task, at most: rows, and panels of columns
  std::int64_t panels;                  // of b
  bool packs_in_tasks;                  // tasks pack what they need of b, a block at a time
  bool packs_ahead;                     // rows of a are packed beside the products of the block before
  bool copies_rows;                     // of a; else those of float32 are multiplied where they lie
  std::int64_t pack_depth;              // of a run in which b is packed
  std::int64_t pack_tasks;
  std::size_t packed;  // bytes of b's panels
};

struct FewRowsPlan : Plan {
  const FewRowsFunctions* kernel;
  std::int64_t task_outputs;
};

ForwardPlan plan(const Problem& p, const Kernels& kernels, int threads);
BackwardPlan plan(const Problem& p, const BackwardResult& result, const Kernels& kernels, int threads);
ProductPlan plan(const Product& p, const Kernels& kernels, int threads);
FewRowsPlan plan(const FewRows& p, const Kernels& kernels, int threads);

// Tiles, whether or not there are few queries.
ForwardPlan plan_tiles(const Problem& p, const Kernels& kernels, int threads);

// Whether products of float32 at this precision take their numbers rounded to bf16.
bool rounds_to_bf16(Precision precision, const Kernels& kernels);

}  // namespace attn::kernels
