// The kernels' names of dtypes.
#pragma once

#include "attn/attention.hpp"
#include "kernels/problem.hpp"

namespace attn {

// Throws Error (dtype) for a dtype that no kernel reads.
kernels::Element element(DType dtype);

}  // namespace attn
