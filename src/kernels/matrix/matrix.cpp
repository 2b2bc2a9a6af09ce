// The kernels on a processor's bf16 matrix instructions, attention's forward and dense products: compiled for
// vdpbf16ps and for AMX, with ATTN_UNIT naming which. What they do not take, float32 at highest precision and f16, goes
// to the AVX-512 kernels.
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
#include "kernels/matrix/product.hpp"

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

bool takes(const Product& p) { return takes(p.element, p.precision); }

std::size_t packed_bytes(const Product& p) {
  return takes(p) ? MatrixProduct::packed_bytes(p) : kernels_avx512.packed_bytes(p);
}

void pack_panel(const Product& p, void* packed, std::int64_t panel) {
  takes(p) ? MatrixProduct::pack_panel(p, packed, panel) : kernels_avx512.pack_panel(p, packed, panel);
}

std::int64_t product_tasks(const Product& p) {
  return takes(p) ? product_tasks<MatrixProduct>(p) : kernels_avx512.product_tasks(p);
}

std::size_t product_scratch(const Product& p) {
  return takes(p) ? product_scratch<MatrixProduct>(p) : kernels_avx512.product_scratch(p);
}

bool product(const Product& p, const void* packed, std::int64_t task, void* scratch) {
  if (!takes(p)) return kernels_avx512.product(p, packed, task, scratch);
  [[maybe_unused]] const Session session;
  return run_product<MatrixProduct>(p, packed, task, scratch);
}

}  // namespace
}  // namespace ATTN_UNIT

// The AVX-512 kernels, these among them.
Kernels ATTN_JOIN(kernels_, ATTN_UNIT)();
Kernels ATTN_JOIN(kernels_, ATTN_UNIT)() {
  Kernels kernels = kernels_avx512;
  kernels.isa = ATTN_STRING(ATTN_UNIT);
  kernels.forward_tasks = ATTN_UNIT::forward_tasks;
  kernels.forward_scratch = ATTN_UNIT::forward_scratch;
  kernels.forward = ATTN_UNIT::forward;
  kernels.packed_bytes = ATTN_UNIT::packed_bytes;
  kernels.pack_panel = ATTN_UNIT::pack_panel;
  kernels.product_tasks = ATTN_UNIT::product_tasks;
  kernels.product_scratch = ATTN_UNIT::product_scratch;
  kernels.product = ATTN_UNIT::product;
  kernels.multiply_add_bf16 = ATTN_UNIT::multiply_add_bf16;
  return kernels;
}

}  // namespace attn::kernels
