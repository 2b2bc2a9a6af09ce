// A fused kernel is handed these: plain numbers and pointers, checked by the caller.
#pragma once

#include <cstdint>

#include "attn/precision.hpp"
#include "attn/score_tile.hpp"

namespace attn::kernels {

enum class Element : std::uint8_t { f32, bf16, f16, i8 };  // i8: in a cache, and of few rows' weights

using attn::Precision;

// (b, h, t, d) with unit stride in d; strides count elements.
struct Rows {
  void* data;
  std::int64_t batch, head, token;
};

// A mask or bias broadcast to (b, hq, tq, tk): strides count elements, 0 where it repeats.
template <class T>
struct Grid {
  const T* data = nullptr;
  std::int64_t batch = 0, head = 0, query = 0, key = 0;
};

// The keys, or the values, of a cache, in bytes: rows (hkv, tokens of a page, width) from `offset` of a page on, and of
// i8 (hkv, tokens) float scales from `scales` on.
struct PageRows {
  std::int64_t offset, head, token, scales;
};

// Keys and values in pages: token t of batch item b lies in page tables[b][t / tokens].
struct Pages {
  const void* const* const* tables;
  std::int64_t tokens;
  Element element;
  PageRows k, v;
};

// A number for each head and distance, in units of log2: for a key `behind` a query's own position (negative: past it),
// data[h · head + behind]. Distances outside [low, high] have the numbers of the ends; kPad repetitions of those are in
// memory on both sides.
struct DistanceBias {
  static constexpr std::int64_t kPad = 16;
  const float* data = nullptr;
  std::int64_t head = 0, low = 0, high = 0;
};

// Weights are kept where `keep` is true, or drawn where there is a threshold: weight (b, h, i, j) is dropped when word
// j % 4 of Philox4x32-10 under `key`, at counter (j / 4, i, h, b) by the labels, is below it.
struct Dropout {
  Grid<bool> keep = {};
  float factor = 1;  // 1 / (1 - p)
  std::uint64_t key = 0;
  std::uint32_t threshold = 0;  // p · 2^32; 0 = none
};

// A block-sparse mask: query i sees key j if keep[b, h, (query_start + i) / query, (key_start + j) / key] is true.
struct BlockMask {
  Grid<bool> keep = {};
  std::int64_t query = 1, key = 1;              // sizes of a block
  std::int64_t query_start = 0, key_start = 0;  // of the first query and key in their blocks
};

// The numbers by which dropout's counters and score functions know the first batch item, head, query and key.
struct Labels {
  std::int64_t batch = 0, head = 0, query = 0, key = 0;
};

// The user's function of the scores and its gradient (attn/score_function.hpp); null = none.
struct ScoreStep {
  ScoreForward forward = nullptr;
  ScoreBackward backward = nullptr;
  void* user = nullptr;
};

struct Problem {
  std::int64_t batch, hq, hkv, tq, tk, d, dv;
  Element element;
  Rows q, k, v;
  float scale;
  float softcap;  // 0 = none
  // Query i of every batch item sees keys [first[i], last[i]): causal masks, windows and key lengths are all intervals.
  const std::int32_t *first, *last;
  Grid<bool> keep;
  Grid<float> bias;
  BlockMask blocks;
  Dropout dropout;
  Labels labels;
  ScoreStep score;
  Precision precision = Precision::highest;
  std::int64_t window = 0;               // keys that a sliding window lets a query see, at most; 0 = no window
  const float* alibi_slopes = nullptr;   // (hq): adds -slope · |centre - key|
  const std::int32_t* centre = nullptr;  // the key at a query's own position, laid out as first; for biases by distance
  DistanceBias distances = {};           // data null = none
  const float* sinks = nullptr;          // (hq): one more score a head, without a value
  std::int64_t all_key_heads = 0;        // of the layer that hkv are some of: keys are cut as for all; 0 = no others
  const Pages* pages = nullptr;          // where keys and values are, in place of k and v; of forward only
};

struct ForwardResult {
  Rows output;
  float* lse;  // of query i of head h of item b, at (b · hq + h) · lse_head + i
  std::int64_t lse_head;
  Element element;         // of the output: the problem's, or float32
  bool* finite = nullptr;  // set to false where a row that may see something is not finite, or its lse; null: not asked
  float* lse_rest = nullptr;  // what lse lacks of the log-sum-exp, laid out as lse is: 0 unless finite; null: not asked
};

// Holds what the forward pass left and the gradient that comes in, as rows of the problem's element.
struct BackwardInput {
  Rows output, d_output;
  const float* lse;  // laid out as the forward's
  std::int64_t lse_head;
};

struct BackwardResult {
  Rows q, k, v;
  Element element;  // of these: the problem's, or float32
  // Gradient of the bias, in a grid of the bias's sizes, its strides 0 where the bias repeats: added to what is
  // there. Null when not asked for.
  float* bias = nullptr;
  std::int64_t bias_batch = 0, bias_head = 0, bias_query = 0, bias_key = 0;
  // Gradient of the bias by distance: added to what is there, of chunk c of the keys and head h of item b from
  // ((c · batch + b) · hq + h) · distances.head on, laid out as the bias. Null when not asked for.
  float* distances = nullptr;
  bool* finite = nullptr;  // set to false where a result but the bias's is not finite; null when not asked for
};

}  // namespace attn::kernels
