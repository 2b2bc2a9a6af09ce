// Projections on the kernels' matrix core; by the reference where the dtype, or an overflow, asks for it.
#pragma once

#include "attn/reference.hpp"

namespace attn {

// As reference::project and reference::project_backward.
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias);
reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias);

}  // namespace attn
