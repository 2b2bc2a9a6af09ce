// The table of a unit: one source compiled for one instruction set, which ATTN_UNIT names.
#include "kernels/table.hpp"

#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)
#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)

namespace attn::kernels {

namespace ATTN_UNIT {
extern const ForwardKernel forward_kernel;
extern const DecodeKernel decode_kernel;
extern const BackwardKernel backward_kernel;
extern const ProductKernel product_kernel;
extern const FewRowsKernel few_rows_kernel;
extern const RecurrenceKernel recurrence_kernel;
extern const ModelKernel model_kernel;
extern const LimitKernel limit_kernel;
}  // namespace ATTN_UNIT

extern const Kernels ATTN_JOIN(kernels_, ATTN_UNIT);
constinit const Kernels ATTN_JOIN(kernels_, ATTN_UNIT){
    .isa = ATTN_STRING(ATTN_UNIT),
    .forward = &ATTN_UNIT::forward_kernel,
    .decode = &ATTN_UNIT::decode_kernel,
    .backward = &ATTN_UNIT::backward_kernel,
    .product = &ATTN_UNIT::product_kernel,
    .few_rows = &ATTN_UNIT::few_rows_kernel,
    .recurrence = &ATTN_UNIT::recurrence_kernel,
    .model = &ATTN_UNIT::model_kernel,
    .limits = &ATTN_UNIT::limit_kernel,
};

}  // namespace attn::kernels
