// How a recurrence is cut into tasks. Nothing is computed by planning.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/table.hpp"

namespace attn::recurrence {

struct Plan {
  const kernels::RecurrenceKernel* kernel;
  std::int64_t panels;       // of a state, in all
  std::int64_t task_panels;  // forward, of a task: all where there are heads enough for the threads
  std::int64_t splits;       // tasks a state
  std::int64_t segment;      // backward: the chunks whose states are kept at once
  double operations;         // of all tasks
  const char* reason;
};

// For the longest sequence of a call with so many states of so many tokens in all.
Plan plan_forward(const kernels::RecurrenceKernel& kernel, const kernels::Recurrence& longest, std::int64_t states,
                  double tokens, int threads);
Plan plan_backward(const kernels::RecurrenceKernel& kernel, const kernels::Recurrence& longest, double tokens);

}  // namespace attn::recurrence
