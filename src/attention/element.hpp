// The kernels' names of dtypes and precisions.
#pragma once

#include "attn/attention.hpp"
#include "kernels/problem.hpp"

namespace attn {

// Throws Error (dtype) for a dtype that no kernel reads.
kernels::Element element(DType dtype);

inline kernels::Precision precision(Precision named) { return static_cast<kernels::Precision>(named); }

}  // namespace attn
