// Projections on the kernels' matrix core; by the reference where the dtype, or an overflow, asks for it.
#pragma once

#include "attn/reference.hpp"

namespace attn {

// A weight in bfloat16 takes half the memory, and half the time where reading it is what takes time; the sums are of
// its values, in float32 as ever.

// As reference::project and reference::project_backward.
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias);
reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias);

// The part of project() for few rows (m, d_in) of float32; undefined when a result left float32's range. Each element
// has the same bits as in a product of more rows.
bool has_few_rows(const Tensor& x, const Tensor& weight);
Tensor project_few_rows(const Tensor& rows, const Tensor& weight, const Tensor& bias);

}  // namespace attn
