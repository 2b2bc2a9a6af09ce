// The kernels on a processor's bf16 matrix instructions, attention forward and backward and dense products: compiled
// for vdpbf16ps and for AMX, with ATTN_UNIT naming which. What they do not take, f16 and float32 where that is faster
// or all there is, goes to the AVX-512 kernels.
#define ATTN_TASK_GROUPS 16  // packed keys and values are used by 512 rows before they leave L2
#define ATTN_BLOCK_KEYS 256  // as many as let a tile of scores stay in L1: the context is loaded and stored per block
#include "kernels/table.hpp"
#if defined(ATTN_AMX)
#include "kernels/amx/decode_int8.hpp"
#include "kernels/amx/few_rows.hpp"
#include "kernels/amx/multiply.hpp"
#else
#include "kernels/vdpbf16/multiply.hpp"
#endif
#include "kernels/attention/backward.hpp"
#include "kernels/bf16/forward.hpp"
#include "kernels/bf16/gradient.hpp"
#include "kernels/bf16/limits.hpp"
#include "kernels/bf16/product.hpp"

#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)
#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)

namespace attn::kernels {

extern const Kernels kernels_avx512;

namespace ATTN_UNIT {
namespace {

std::size_t forward_shared(const Problem& p) {
  return takes(p) ? PackedBlocks(p, nullptr).bytes() : kernels_avx512.forward_shared(p);
}

std::size_t forward_scratch(const Problem& p) {
  return takes(p) ? matrix_forward_scratch(p) : kernels_avx512.forward_scratch(p);
}

std::int64_t forward_tasks(const Problem& p, int phase) {
  return takes(p) ? matrix_forward_tasks(p, phase) : kernels_avx512.forward_tasks(p, phase);
}

void forward(const Problem& p, const ForwardResult& result, int phase, std::int64_t task, void* shared, void* scratch) {
  if (!takes(p)) return kernels_avx512.forward(p, result, phase, task, shared, scratch);
  [[maybe_unused]] const Session session;
  run_matrix_forward(p, result, phase, task, shared, scratch);
}

#if defined(ATTN_AMX)
std::size_t decode_scratch(const Problem& p) {
  return decodes_int8(p) ? decode_scratch<Int8Decode>(p) : kernels_avx512.decode_scratch(p);
}

void decode(const Problem& p, const ForwardResult& result, int phase, std::int64_t task, void* shared, void* scratch) {
  if (!decodes_int8(p)) return kernels_avx512.decode(p, result, phase, task, shared, scratch);
  [[maybe_unused]] const Session session;
  run_decode<Int8Decode>(p, result, phase, task, shared, scratch);
}
#endif

std::size_t backward_shared(const Problem& p) {
  if (!takes(p)) return kernels_avx512.backward_shared(p);
  return with_gradient(p, [&]<class Core>() { return backward_shared<Core>(p); });
}

std::size_t backward_scratch(const Problem& p) {
  if (!takes(p)) return kernels_avx512.backward_scratch(p);
  return with_gradient(p, [&]<class Core>() { return backward_scratch<Core>(p); });
}

std::int64_t backward_tasks(const Problem& p, const BackwardResult& result, int phase) {
  if (!takes(p)) return kernels_avx512.backward_tasks(p, result, phase);
  return with_gradient(p, [&]<class Core>() { return backward_tasks<Core>(p, result, phase); });
}

void backward(const Problem& p, const BackwardInput& in, const BackwardResult& result, int phase, std::int64_t task,
              void* shared, void* scratch) {
  if (!takes(p)) return kernels_avx512.backward(p, in, result, phase, task, shared, scratch);
  [[maybe_unused]] const Session session;
  with_gradient(p, [&]<class Core>() { run_backward<Core>(p, in, result, phase, task, shared, scratch); });
}

// Float32 at highest precision from some depth on: an element's bits shall not depend on how many rows there are, nor
// columns.
bool takes_exact(std::int64_t depth) {
  constexpr std::int64_t kLeastDepth = 64;
  return kTakesHigh && depth >= kLeastDepth;
}

bool takes(const Product& p) {
  return takes(operands(p), p.precision) || (operands(p) == Element::f32 && takes_exact(p.k));
}

std::size_t packed_bytes(const Product& p) {
  return takes(p) ? packed_bytes<MatrixProduct>(p) : kernels_avx512.packed_bytes(p);
}

std::int64_t pack_tasks(const Product& p) {
  return takes(p) ? pack_tasks<MatrixProduct>(p) : kernels_avx512.pack_tasks(p);
}

void pack(const Product& p, void* packed, std::int64_t task) {
  takes(p) ? run_pack<MatrixProduct>(p, packed, task) : kernels_avx512.pack(p, packed, task);
}

std::int64_t product_tasks(const Product& p) {
  return takes(p) ? product_tasks<MatrixProduct>(p) : kernels_avx512.product_tasks(p);
}

std::size_t product_scratch(const Product& p) {
  return takes(p) ? product_scratch<MatrixProduct>(p) : kernels_avx512.product_scratch(p);
}

bool product(const Product& p, const void* packed, const TaskSource& tasks, void* scratch) {
  if (!takes(p)) return kernels_avx512.product(p, packed, tasks, scratch);
  [[maybe_unused]] const Session session;
  return run_product<MatrixProduct>(p, packed, tasks, scratch);
}

#if defined(ATTN_AMX)
std::size_t few_rows_scratch(const FewRows& p) {
  return takes_exact(p.k) ? FewRowsScratch(p, Carver{nullptr}).bytes : kernels_avx512.few_rows_scratch(p);
}

std::int64_t few_rows_tasks(const FewRows& p) {
  return takes_exact(p.k) ? ceil_div(p.n, kTaskOutputs) : kernels_avx512.few_rows_tasks(p);
}

bool few_rows(const FewRows& p, std::int64_t task, void* scratch) {
  if (!takes_exact(p.k)) return kernels_avx512.few_rows(p, task, scratch);
  [[maybe_unused]] const Session session;
  return run_few_rows(p, task, scratch);
}
#endif

}  // namespace
}  // namespace ATTN_UNIT

// The AVX-512 kernels, these among them.
Kernels ATTN_JOIN(kernels_, ATTN_UNIT)();
Kernels ATTN_JOIN(kernels_, ATTN_UNIT)() {
  Kernels kernels = kernels_avx512;
  kernels.isa = ATTN_STRING(ATTN_UNIT);
  kernels.forward_shared = ATTN_UNIT::forward_shared;
  kernels.forward_tasks = ATTN_UNIT::forward_tasks;
  kernels.forward_scratch = ATTN_UNIT::forward_scratch;
  kernels.forward = ATTN_UNIT::forward;
#if defined(ATTN_AMX)
  kernels.decode_scratch = ATTN_UNIT::decode_scratch;
  kernels.decode = ATTN_UNIT::decode;
#endif
  kernels.backward_shared = ATTN_UNIT::backward_shared;
  kernels.backward_scratch = ATTN_UNIT::backward_scratch;
  kernels.backward_tasks = ATTN_UNIT::backward_tasks;
  kernels.backward = ATTN_UNIT::backward;
  kernels.packed_bytes = ATTN_UNIT::packed_bytes;
  kernels.pack_tasks = ATTN_UNIT::pack_tasks;
  kernels.pack = ATTN_UNIT::pack;
  kernels.product_tasks = ATTN_UNIT::product_tasks;
  kernels.product_scratch = ATTN_UNIT::product_scratch;
  kernels.product = ATTN_UNIT::product;
#if defined(ATTN_AMX)
  kernels.few_rows_scratch = ATTN_UNIT::few_rows_scratch;
  kernels.few_rows_tasks = ATTN_UNIT::few_rows_tasks;
  kernels.few_rows = ATTN_UNIT::few_rows;
#endif
  kernels.multiply_add_bf16 = ATTN_UNIT::multiply_add_bf16;
  return kernels;
}

}  // namespace attn::kernels
