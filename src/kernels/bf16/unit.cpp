// The table of a unit with products of bf16 parts: AVX-512's, and these.
#include "kernels/table.hpp"

#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)
#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)

namespace attn::kernels {

extern const Kernels kernels_avx512;

namespace ATTN_UNIT {
extern const ForwardKernel forward_kernel;
extern const BackwardKernel backward_kernel;
extern const ProductKernel product_kernel;
double multiply_add_bf16(std::int64_t rounds, float* sink);
#if defined(ATTN_AMX)
extern const DecodeKernel decode_kernel;
extern const FewRowsKernel few_rows_kernel;
#endif
}  // namespace ATTN_UNIT

Kernels ATTN_JOIN(kernels_, ATTN_UNIT)();
Kernels ATTN_JOIN(kernels_, ATTN_UNIT)() {
  Kernels kernels = kernels_avx512;
  kernels.isa = ATTN_STRING(ATTN_UNIT);
  kernels.bf16_forward = &ATTN_UNIT::forward_kernel;
  kernels.bf16_backward = &ATTN_UNIT::backward_kernel;
  kernels.bf16_product = &ATTN_UNIT::product_kernel;
  kernels.multiply_add_bf16 = ATTN_UNIT::multiply_add_bf16;
#if defined(ATTN_AMX)
  kernels.int8_decode = &ATTN_UNIT::decode_kernel;
  kernels.bf16_few_rows = &ATTN_UNIT::few_rows_kernel;
#endif
  return kernels;
}

}  // namespace attn::kernels
