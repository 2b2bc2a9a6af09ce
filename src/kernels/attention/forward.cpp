// The fused forward on tiles of float32, for the unit's table.
#include "kernels/attention/float_forward.hpp"
#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Keys and values are read by each task: they share nothing, and phase 0 has no tasks.
std::size_t shared(const Problem&, const ForwardPlan&) { return 0; }

std::size_t scratch(const Problem& p, const ForwardPlan& plan) {
  return bytes_of<ForwardScratch<FloatForward>>(p, plan, nullptr);
}

void run(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, int, std::int64_t task, void* shared,
         void* scratch) {
  forward_task<FloatForward>(p, plan, result, task, shared, scratch);
}

}  // namespace

extern const ForwardKernel forward_kernel;
const ForwardKernel forward_kernel{{shared, scratch, run}, kColumns, kGroups, kBlockKeys, 0, 0};

}  // namespace attn::kernels::ATTN_UNIT
