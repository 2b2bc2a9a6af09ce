// The unit's table of what a language model computes between its products, and of the processor's limits.
#include <cstddef>

#include "kernels/model/adamw.hpp"
#include "kernels/model/cross_entropy.hpp"
#include "kernels/model/gated.hpp"
#include "kernels/model/gelu.hpp"
#include "kernels/model/layer_norm.hpp"
#include "kernels/model/rms_norm.hpp"
#include "kernels/simd/limits.hpp"
#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {

extern const ModelKernel model_kernel;
const ModelKernel model_kernel{
    narrow, layer_norm,     layer_norm_backward, rms_norm, rms_norm_backward, gelu, gelu_backward,
    gated,  gated_backward, cross_entropy,       adamw,    sum_of_squares};

extern const LimitKernel limit_kernel;
const LimitKernel limit_kernel{multiply_add_f32, read_memory};

}  // namespace attn::kernels::ATTN_UNIT
