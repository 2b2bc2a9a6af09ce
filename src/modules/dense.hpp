// Projections on the kernels' matrix core; by the reference where the dtype, or an overflow, asks for it.
#pragma once

#include "attn/attention.hpp"
#include "attn/reference.hpp"

namespace attn {

// As reference::project and reference::project_backward, for float32 in products of `precision`; sums are float32's,
// and a row of the result has the same bits whatever other rows there are. A weight in bfloat16 under float32 rows
// takes half the memory, and half the time where reading it is what takes time; the sums are of its values.
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias, Precision precision = Precision::highest);
reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias,
                                            Precision precision = Precision::highest);

// The part of project() for few rows (m, d_in) of float32; undefined when a result left float32's range. Each element
// has the same bits as in a product of more rows.
bool has_few_rows(const Tensor& x, const Tensor& weight);
Tensor project_few_rows(const Tensor& rows, const Tensor& weight, const Tensor& bias);

}  // namespace attn
