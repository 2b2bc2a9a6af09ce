// The fused forward on products of bf16 parts, for the unit's table.
#include "kernels/bf16/forward.hpp"

#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

std::size_t shared(const Problem& p, const ForwardPlan& plan) { return PackedBlocks(p, plan, nullptr).bytes(); }

std::size_t scratch(const Problem& p, const ForwardPlan& plan) {
  std::size_t bytes = 0;
  with_parts(plan.parts, [&](auto n) { bytes = bytes_of<ForwardScratch<MatrixForward<n.value>>>(p, plan, nullptr); });
  return bytes;
}

// Phase 0 packs keys and values, a block a task; phase 1 is the forward pass.
void run(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, int phase, std::int64_t task,
         void* shared, void* scratch) {
  [[maybe_unused]] const Session session;
  if (phase == 0) {
    Workspace take{static_cast<float*>(scratch)};
    PackedBlocks blocks(p, plan, shared);
    blocks.take_memory(take);
    return blocks.pack(task);
  }
  with_parts(plan.parts, [&](auto n) { forward_task<MatrixForward<n.value>>(p, plan, result, task, shared, scratch); });
}

}  // namespace

extern const ForwardKernel forward_kernel;
const ForwardKernel forward_kernel{{shared, scratch, run}, kColumns, kGroups, kBlockKeys, kForwardStrip, kMostParts};

}  // namespace attn::kernels::ATTN_UNIT
