// Products of few rows in bf16 parts, for the unit's table.
#if defined(ATTN_AMX)
#include "kernels/amx/few_rows.hpp"
#else
#include "kernels/vdpbf16/few_rows.hpp"
#endif
#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

std::size_t scratch(const FewRows& p, const FewRowsPlan& plan) { return bytes_of<FewRowsScratch>(p, plan); }

bool run(const FewRows& p, const FewRowsPlan& plan, std::int64_t task, void* scratch) {
  [[maybe_unused]] const Session session;
  Workspace take{static_cast<float*>(scratch)};
  return run_few_rows(p, plan, task, FewRowsScratch(p, plan, take));
}

}  // namespace

extern const FewRowsKernel few_rows_kernel;
const FewRowsKernel few_rows_kernel{{scratch, run}, kTaskOutputs};

}  // namespace attn::kernels::ATTN_UNIT
