// The kernels' names of dtypes.
#pragma once

#include "attn/attention.hpp"
#include "kernels/problem.hpp"

namespace attn {

// Whether the kernels read it.
bool has_element(DType dtype) noexcept;
// Throws Error (dtype) for a dtype that no kernel reads.
kernels::Element element(DType dtype);

}  // namespace attn
