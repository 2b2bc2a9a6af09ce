// The fused backward on tiles of float32, for the unit's table.
#include "kernels/attention/backward.hpp"

#include "kernels/attention/float_gradient.hpp"

namespace attn::kernels::ATTN_UNIT {

extern const BackwardKernel backward_kernel;
const BackwardKernel backward_kernel{{backward_shared, backward_scratch<FloatGradient>, run_backward<FloatGradient>},
                                     kColumns,
                                     kGroups,
                                     FloatGradient::kRowStep,
                                     0,
                                     {FloatGradient::kCut}};

}  // namespace attn::kernels::ATTN_UNIT
