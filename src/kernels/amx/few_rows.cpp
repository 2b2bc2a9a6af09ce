// Products of few rows in bf16 parts, for the unit's table.
#include "kernels/amx/few_rows.hpp"

#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

std::size_t scratch(const FewRows& p, const FewRowsPlan&) { return bytes_of<FewRowsScratch>(p); }

bool run(const FewRows& p, const FewRowsPlan& plan, std::int64_t task, void* scratch) {
  [[maybe_unused]] const Session session;
  return run_few_rows(p, plan, task, scratch);
}

}  // namespace

extern const FewRowsKernel few_rows_kernel;
const FewRowsKernel few_rows_kernel{{scratch, run}, kTaskOutputs};

}  // namespace attn::kernels::ATTN_UNIT
