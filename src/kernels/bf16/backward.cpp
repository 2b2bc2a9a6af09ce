// The fused backward on products of bf16 parts, for the unit's table.
#include "kernels/attention/backward.hpp"

#include "kernels/bf16/gradient.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

std::size_t scratch(const Problem& p, const BackwardPlan& plan) {
  std::size_t bytes = 0;
  with_parts(plan.parts, [&](auto n) { bytes = backward_scratch<MatrixGradient<n.value>>(p, plan); });
  return bytes;
}

void run(const Problem& p, const BackwardPlan& plan, const BackwardInput& in, const BackwardResult& result, int phase,
         std::int64_t task, void* shared, void* scratch) {
  [[maybe_unused]] const Session session;
  with_parts(plan.parts,
             [&](auto n) { run_backward<MatrixGradient<n.value>>(p, plan, in, result, phase, task, shared, scratch); });
}

}  // namespace

extern const BackwardKernel backward_kernel;
const BackwardKernel backward_kernel{{backward_shared, scratch, run},
                                     kColumns,
                                     kGroups,
                                     kRowStep,
                                     kMostParts,
                                     {kGradientCuts[0], kGradientCuts[1], kGradientCuts[2]}};

}  // namespace attn::kernels::ATTN_UNIT
