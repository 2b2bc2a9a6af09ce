// A recurrence's kernels are handed these: one sequence of one head, or of one query head of a state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/problem.hpp"

namespace attn::kernels {

// Rows of a head, so many elements apart, each with unit stride.
struct TokenRows {
  const void* data = nullptr;
  std::int64_t step = 0;
};

struct Recurrence {
  std::int64_t tokens, d_k, d_v;
  bool delta;  // or plain
  float scale;
  Element element;  // of q, k, v, and of the output
  TokenRows q, k, v;
  const float* decay;  // in log; null: none
  std::int64_t decay_step;
  bool by_channel;    // d_k decays a token, or one
  const float* beta;  // null: 1
  std::int64_t beta_step;
  const float* initial;  // (d_k, d_v), null: zeros
};

struct RecurrenceResult {
  void* output;  // rows of d_v
  std::int64_t step;
  float* state;  // (d_k, d_v), null: not asked for
};

// Rows are whole, one after the other. Those of q are written, others are added to but for what `add` says.
struct RecurrenceGradient {
  TokenRows d_output;    // of the problem's element
  const float* d_state;  // null: zeros
  float *dq, *dk, *dv;
  bool add;                             // or write dk and dv: they hold nothing yet
  float *d_decay, *d_beta, *d_initial;  // null: not asked for
};

// A state's columns are cut into panels. Forward, a task has some of them; backward, all.
struct RecurrenceKernel {
  int panel;  // columns
  std::size_t (*forward_scratch)(const Recurrence&, std::int64_t panels);
  void (*forward)(const Recurrence&, const RecurrenceResult&, std::int64_t first_panel, std::int64_t panels,
                  void* scratch);
  int chunk;  // tokens
  // The states of `segment` chunks are kept at once.
  std::size_t (*backward_scratch)(const Recurrence&, std::int64_t segment);
  void (*backward)(const Recurrence&, const RecurrenceGradient&, std::int64_t segment, void* scratch);
};

}  // namespace attn::kernels
