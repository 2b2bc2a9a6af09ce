// The table of a unit: one source compiled for one instruction set, which ATTN_UNIT names. Units with products of bf16
// parts (ATTN_BF16) have AVX-512's kernels beside them.
#include "kernels/table.hpp"

#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)
#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)
#ifdef ATTN_BF16
#define ATTN_BASE avx512
#define ATTN_IF_BF16(own) own
#else
#define ATTN_BASE ATTN_UNIT
#define ATTN_IF_BF16(own) nullptr
#endif
#ifdef ATTN_AMX
#define ATTN_IF_AMX(own) own
#define ATTN_AMX_OR_BASE ATTN_UNIT
#else
#define ATTN_IF_AMX(own) nullptr
#define ATTN_AMX_OR_BASE ATTN_BASE
#endif

namespace attn::kernels {

namespace ATTN_BASE {
extern const ForwardKernel forward_kernel;
extern const DecodeKernel decode_kernel;
extern const BackwardKernel backward_kernel;
extern const ProductKernel product_kernel;
extern const FewRowsKernel few_rows_kernel;
extern const RecurrenceKernel recurrence_kernel;
extern const ModelKernel model_kernel;
extern const LimitKernel limit_kernel;
}  // namespace ATTN_BASE

#ifdef ATTN_BF16
namespace ATTN_UNIT {
extern const ForwardKernel forward_kernel;
extern const DecodeKernel decode_kernel;
extern const BackwardKernel backward_kernel;
extern const ProductKernel product_kernel;
extern const FewRowsKernel few_rows_kernel;
#ifdef ATTN_AMX
extern const RecurrenceKernel recurrence_kernel;
#endif
double multiply_add_bf16(std::int64_t rounds, float* sink);
}  // namespace ATTN_UNIT
#endif

// Data, not a function that makes it: every processor reads the tables, and not each could run code of this unit.
extern const Kernels ATTN_JOIN(kernels_, ATTN_UNIT);
constinit const Kernels ATTN_JOIN(kernels_, ATTN_UNIT){
    .isa = ATTN_STRING(ATTN_UNIT),
    .forward = &ATTN_BASE::forward_kernel,
    .bf16_forward = ATTN_IF_BF16(&ATTN_UNIT::forward_kernel),
    .decode = &ATTN_BASE::decode_kernel,
    .int8_decode = ATTN_IF_AMX(&ATTN_UNIT::decode_kernel),
    .backward = &ATTN_BASE::backward_kernel,
    .bf16_backward = ATTN_IF_BF16(&ATTN_UNIT::backward_kernel),
    .product = &ATTN_BASE::product_kernel,
    .bf16_product = ATTN_IF_BF16(&ATTN_UNIT::product_kernel),
    .few_rows = &ATTN_BASE::few_rows_kernel,
    .bf16_few_rows = ATTN_IF_BF16(&ATTN_UNIT::few_rows_kernel),
    .recurrence = &ATTN_AMX_OR_BASE::recurrence_kernel,
    .model = &ATTN_BASE::model_kernel,
    .limits = &ATTN_BASE::limit_kernel,
    .multiply_add_bf16 = ATTN_IF_BF16(ATTN_UNIT::multiply_add_bf16),
};

}  // namespace attn::kernels
