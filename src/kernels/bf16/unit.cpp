// The table of a unit with products of bf16 parts: AVX-512's, and these.
#include "kernels/table.hpp"

#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)
#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)

namespace attn::kernels {

namespace avx512 {
extern const ForwardKernel forward_kernel;
extern const DecodeKernel decode_kernel;
extern const BackwardKernel backward_kernel;
extern const ProductKernel product_kernel;
extern const FewRowsKernel few_rows_kernel;
extern const RecurrenceKernel recurrence_kernel;
extern const ModelKernel model_kernel;
extern const LimitKernel limit_kernel;
}  // namespace avx512

namespace ATTN_UNIT {
extern const ForwardKernel forward_kernel;
extern const BackwardKernel backward_kernel;
extern const ProductKernel product_kernel;
double multiply_add_bf16(std::int64_t rounds, float* sink);
extern const FewRowsKernel few_rows_kernel;
#if defined(ATTN_AMX)
extern const DecodeKernel decode_kernel;
#endif
}  // namespace ATTN_UNIT

// Data, not a function that makes it: every processor reads the tables, and not each could run code of this unit.
extern const Kernels ATTN_JOIN(kernels_, ATTN_UNIT);
constinit const Kernels ATTN_JOIN(kernels_, ATTN_UNIT) {
  .isa = ATTN_STRING(ATTN_UNIT), .forward = &avx512::forward_kernel, .bf16_forward = &ATTN_UNIT::forward_kernel,
  .decode = &avx512::decode_kernel,
#if defined(ATTN_AMX)
  .int8_decode = &ATTN_UNIT::decode_kernel,
#endif
  .backward = &avx512::backward_kernel, .bf16_backward = &ATTN_UNIT::backward_kernel,
  .product = &avx512::product_kernel, .bf16_product = &ATTN_UNIT::product_kernel, .few_rows = &avx512::few_rows_kernel,
  .bf16_few_rows = &ATTN_UNIT::few_rows_kernel, .recurrence = &avx512::recurrence_kernel,
  .model = &avx512::model_kernel, .limits = &avx512::limit_kernel, .multiply_add_bf16 = ATTN_UNIT::multiply_add_bf16,
};

}  // namespace attn::kernels
