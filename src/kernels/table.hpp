// The kernels of one instruction set, as a table of functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/model/problem.hpp"
#include "kernels/problem.hpp"
#include "kernels/product/problem.hpp"

namespace attn::kernels {

constexpr int kForwardPhases = 2, kBackwardPhases = 3, kDecodePhases = 2;

// A call is cut into tasks that can run in any order and on any thread: what a task computes, and in which
// order it adds, depends on the problem alone. Each running task has its own scratch, aligned to 64 bytes.
struct Kernels {
  const char* isa;

  // In kForwardPhases phases: all tasks of one must be done before the next begins. `shared` is one block of memory for
  // the whole call, linear in tk, handed on from phase to phase; it needs no clearing.
  std::size_t (*forward_shared)(const Problem&);   // bytes
  std::size_t (*forward_scratch)(const Problem&);  // bytes
  std::int64_t (*forward_tasks)(const Problem&, int phase);
  void (*forward)(const Problem&, const ForwardResult&, int phase, std::int64_t task, void* shared, void* scratch);

  // Few queries and many keys, in kDecodePhases phases, likewise: for problems that decodes() names.
  bool (*decodes)(const Problem&);
  std::size_t (*decode_shared)(const Problem&);   // bytes
  std::size_t (*decode_scratch)(const Problem&);  // bytes
  std::int64_t (*decode_tasks)(const Problem&, int phase);
  void (*decode)(const Problem&, const ForwardResult&, int phase, std::int64_t task, void* shared, void* scratch);

  // The gradient, in kBackwardPhases phases, likewise; `shared` is linear in tq.
  std::size_t (*backward_shared)(const Problem&);   // bytes
  std::size_t (*backward_scratch)(const Problem&);  // bytes
  std::int64_t (*backward_tasks)(const Problem&, const BackwardResult&, int phase);
  void (*backward)(const Problem&, const BackwardInput&, const BackwardResult&, int phase, std::int64_t task,
                   void* shared, void* scratch);

  // A dense product: pack b, then run the tasks.
  std::size_t (*packed_bytes)(const Product&);
  std::int64_t (*pack_tasks)(const Product&);
  void (*pack)(const Product&, void* packed, std::int64_t task);
  std::int64_t (*product_tasks)(const Product&);
  std::size_t (*product_scratch)(const Product&);  // bytes
  // A thread's tasks, as long as there are any: it may read what the next one needs beside the one before. False when a
  // result left the element's range.
  bool (*product)(const Product&, const void* packed, const TaskSource&, void* scratch);

  // The same sums for few rows and any weight, read as it lies; false as above.
  std::int64_t (*few_rows_tasks)(const FewRows&);
  std::size_t (*few_rows_scratch)(const FewRows&);  // bytes
  bool (*few_rows)(const FewRows&, std::int64_t task, void* scratch);

  // What a language model does between its products.
  void (*narrow)(Element, const float* from, void* to, std::int64_t n);
  void (*layer_norm)(const LayerNormRows&);
  void (*layer_norm_backward)(const LayerNormGradient&);
  void (*gelu)(const GeluRun&);
  void (*gelu_backward)(const GeluRun&);
  double (*cross_entropy)(const LogitsRow&);
  void (*adamw)(const AdamWStep&);
  double (*sum_of_squares)(std::int64_t n, const float* x);

  // The processor's limits, to measure kernels by: multiply-adds out of registers, which return how many
  // floating-point operations they did, and reading memory. `sink` is one float, near 1.
  double (*multiply_add_f32)(std::int64_t rounds, float* sink);
  double (*multiply_add_bf16)(std::int64_t rounds, float* sink) = nullptr;  // null: no such instruction
  void (*read_memory)(const float* data, std::int64_t count, float* sink);
};

}  // namespace attn::kernels
