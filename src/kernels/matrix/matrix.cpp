// The forward kernel on a processor's bf16 matrix instructions: compiled for vdpbf16ps and for AMX, with ATTN_UNIT
// naming which. What it does not take, float32 at highest precision and f16, goes to the AVX-512 kernels.
#define ATTN_TASK_GROUPS 16  // packed keys and values are used by 512 rows before they leave L2
#define ATTN_BLOCK_KEYS 256  // as many as let a tile of scores stay in L1: the context is loaded and stored per block
#include "kernels/table.hpp"
#if defined(ATTN_AMX)
#include "kernels/matrix/amx.hpp"
#else
#include "kernels/matrix/dot.hpp"
#endif
#include "kernels/matrix/core.hpp"
#include "kernels/matrix/limits.hpp"

#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)
#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)

namespace attn::kernels {

extern const Kernels kernels_avx512;

namespace ATTN_UNIT {
namespace {

std::int64_t forward_tasks(const Problem& p) { return takes(p) ? task_count(p) : kernels_avx512.forward_tasks(p); }

std::size_t forward_scratch(const Problem& p) {
  return takes(p) ? online_scratch<MatrixCore>(p) : kernels_avx512.forward_scratch(p);
}

void forward(const Problem& p, const ForwardResult& result, std::int64_t task, void* scratch) {
  if (!takes(p)) return kernels_avx512.forward(p, result, task, scratch);
  [[maybe_unused]] const Session session;
  online_forward<MatrixCore>(p, result, task, scratch);
}

}  // namespace
}  // namespace ATTN_UNIT

// The AVX-512 kernels, this forward among them.
Kernels ATTN_JOIN(kernels_, ATTN_UNIT)();
Kernels ATTN_JOIN(kernels_, ATTN_UNIT)() {
  Kernels kernels = kernels_avx512;
  kernels.isa = ATTN_STRING(ATTN_UNIT);
  kernels.forward_tasks = ATTN_UNIT::forward_tasks;
  kernels.forward_scratch = ATTN_UNIT::forward_scratch;
  kernels.forward = ATTN_UNIT::forward;
  kernels.multiply_add_bf16 = ATTN_UNIT::multiply_add_bf16;
  return kernels;
}

}  // namespace attn::kernels
