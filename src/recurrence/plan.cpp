#include "recurrence/plan.hpp"

#include <algorithm>
#include <cmath>

namespace attn::recurrence {
namespace {

// A thread keeps at most so many bytes of states: where there are more, they are computed twice.
constexpr std::int64_t kKeptBytes = std::int64_t{64} << 20;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

double state_size(const kernels::Recurrence& p) { return static_cast<double>(p.d_k) * static_cast<double>(p.d_v); }

}  // namespace

Plan plan_forward(const kernels::RecurrenceKernel& kernel, const kernels::Recurrence& longest, std::int64_t states,
                  double tokens, int threads) {
  Plan plan{&kernel, ceil_div(longest.d_v, kernel.panel), 0, 1, 0, 7 * state_size(longest) * tokens, ""};
  // Each part packs the keys and queries anew, which costs about a panel's pass in eight.
  const std::int64_t wanted =
      states >= 2 * threads || threads == 1 ? 1 : ceil_div(2 * threads, std::max<std::int64_t>(states, 1));
  plan.task_panels = ceil_div(plan.panels, std::min(wanted, plan.panels));
  plan.splits = ceil_div(plan.panels, plan.task_panels);
  plan.reason = plan.splits == 1 ? "a state a task: there are enough for the threads"
                                 : "some columns of a state a task: there are few states";
  return plan;
}

Plan plan_backward(const kernels::RecurrenceKernel& kernel, const kernels::Recurrence& longest, double tokens) {
  const std::int64_t chunks = std::max<std::int64_t>(ceil_div(longest.tokens, kernel.chunk), 1);
  const auto kept = static_cast<std::int64_t>(static_cast<double>(kKeptBytes) / (4 * state_size(longest)));
  Plan plan{&kernel, 0, 0, 1, chunks, 16 * state_size(longest) * tokens, "the states of all chunks are kept"};
  if (chunks <= kept) return plan;
  plan.segment = std::max(static_cast<std::int64_t>(std::sqrt(static_cast<double>(chunks))), std::int64_t{1});
  plan.reason = "the states of a segment are kept, and computed twice: all would take more than 64 MB";
  return plan;
}

}  // namespace attn::recurrence
