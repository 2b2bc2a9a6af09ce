// Projections on the kernels' matrix core; by the reference where the dtype, or an overflow, asks for it.
#pragma once

#include "attn/attention.hpp"
#include "attn/reference.hpp"

namespace attn {

// As reference::project and reference::project_backward, for float32 in products of `precision`; sums are float32's,
// and a row of the result has the same bits whatever other rows there are.
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias, Precision precision = Precision::highest);
reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias,
                                            Precision precision = Precision::highest);

}  // namespace attn
