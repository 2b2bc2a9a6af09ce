// The kernels of one instruction set, as a table of functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/problem.hpp"

namespace attn::kernels {

// A call is cut into tasks that can run in any order and on any thread: what a task computes, and in which
// order it adds, depends on the problem alone. Each running task has its own scratch, aligned to 64 bytes.
struct Kernels {
  const char* isa;
  std::int64_t (*forward_tasks)(const Problem&);
  std::size_t (*forward_scratch)(const Problem&);  // bytes
  void (*forward)(const Problem&, const ForwardResult&, std::int64_t task, void* scratch);
};

}  // namespace attn::kernels
