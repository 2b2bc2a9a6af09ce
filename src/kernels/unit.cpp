// Compiled once for every instruction set, with ATTN_UNIT naming it: the one source of its kernels.
#include "kernels/attention/backward.hpp"
#include "kernels/attention/float_decode.hpp"
#include "kernels/attention/float_forward.hpp"
#include "kernels/attention/float_gradient.hpp"
#include "kernels/model/adamw.hpp"
#include "kernels/model/cross_entropy.hpp"
#include "kernels/model/gelu.hpp"
#include "kernels/model/layer_norm.hpp"
#include "kernels/product/few_rows.hpp"
#include "kernels/product/float_product.hpp"
#include "kernels/simd/limits.hpp"
#include "kernels/table.hpp"

#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)
#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)

namespace attn::kernels {

extern const Kernels ATTN_JOIN(kernels_, ATTN_UNIT);
const Kernels ATTN_JOIN(kernels_, ATTN_UNIT){
    .isa = ATTN_STRING(ATTN_UNIT),
    .forward_shared = ATTN_UNIT::forward_shared,
    .forward_scratch = ATTN_UNIT::forward_scratch,
    .forward_tasks = ATTN_UNIT::forward_tasks,
    .forward = ATTN_UNIT::forward,
    .decodes = ATTN_UNIT::decodes,
    .decode_shared = ATTN_UNIT::decode_shared,
    .decode_scratch = ATTN_UNIT::decode_scratch,
    .decode_tasks = ATTN_UNIT::decode_tasks,
    .decode = ATTN_UNIT::decode,
    .backward_shared = ATTN_UNIT::backward_shared<ATTN_UNIT::FloatGradient>,
    .backward_scratch = ATTN_UNIT::backward_scratch<ATTN_UNIT::FloatGradient>,
    .backward_tasks = ATTN_UNIT::backward_tasks<ATTN_UNIT::FloatGradient>,
    .backward = ATTN_UNIT::run_backward<ATTN_UNIT::FloatGradient>,
    .packed_bytes = ATTN_UNIT::packed_bytes<ATTN_UNIT::FloatProduct>,
    .pack_tasks = ATTN_UNIT::pack_tasks<ATTN_UNIT::FloatProduct>,
    .pack = ATTN_UNIT::run_pack<ATTN_UNIT::FloatProduct>,
    .product_tasks = ATTN_UNIT::product_tasks<ATTN_UNIT::FloatProduct>,
    .product_scratch = ATTN_UNIT::product_scratch<ATTN_UNIT::FloatProduct>,
    .product = ATTN_UNIT::run_product<ATTN_UNIT::FloatProduct>,
    .few_rows_tasks = ATTN_UNIT::few_rows_tasks,
    .few_rows_scratch = ATTN_UNIT::few_rows_scratch,
    .few_rows = ATTN_UNIT::few_rows,
    .narrow = ATTN_UNIT::narrow,
    .layer_norm = ATTN_UNIT::layer_norm,
    .layer_norm_backward = ATTN_UNIT::layer_norm_backward,
    .gelu = ATTN_UNIT::gelu,
    .gelu_backward = ATTN_UNIT::gelu_backward,
    .cross_entropy = ATTN_UNIT::cross_entropy,
    .adamw = ATTN_UNIT::adamw,
    .sum_of_squares = ATTN_UNIT::sum_of_squares,
    .multiply_add_f32 = ATTN_UNIT::multiply_add_f32,
    .read_memory = ATTN_UNIT::read_memory,
};

}  // namespace attn::kernels
