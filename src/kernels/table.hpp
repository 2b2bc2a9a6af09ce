// The kernels of one instruction set, as a table of functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/problem.hpp"
#include "kernels/product.hpp"

namespace attn::kernels {

constexpr int kBackwardPhases = 2;

// A call is cut into tasks that can run in any order and on any thread: what a task computes, and in which
// order it adds, depends on the problem alone. Each running task has its own scratch, aligned to 64 bytes.
struct Kernels {
  const char* isa;
  std::int64_t (*forward_tasks)(const Problem&);
  std::size_t (*forward_scratch)(const Problem&);  // bytes
  void (*forward)(const Problem&, const ForwardResult&, std::int64_t task, void* scratch);

  // The gradient, in kBackwardPhases phases: all tasks of one must be done before the next begins. `shared` is one
  // block of memory for the whole call, linear in tq, handed on from phase to phase; it needs no clearing.
  std::size_t (*backward_shared)(const Problem&);   // bytes
  std::size_t (*backward_scratch)(const Problem&);  // bytes
  std::int64_t (*backward_tasks)(const Problem&, const BackwardResult&, int phase);
  void (*backward)(const Problem&, const BackwardInput&, const BackwardResult&, int phase, std::int64_t task,
                   void* shared, void* scratch);

  // A dense product: pack each panel of b, then run the tasks.
  std::int64_t (*panels)(const Product&);
  std::int64_t (*packed_floats)(const Product&);
  void (*pack_panel)(const Product&, float* packed, std::int64_t panel);
  std::int64_t (*product_tasks)(const Product&);
  std::size_t (*product_scratch)(const Product&);  // bytes
  // False when a result left float32's range.
  bool (*product)(const Product&, const float* packed, std::int64_t task, void* scratch);
};

}  // namespace attn::kernels
