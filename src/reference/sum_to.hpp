// The gradient of broadcasting.
#pragma once

#include "attn/tensor.hpp"

namespace attn::reference {

// Sums x over the dimensions in which `shape`, broadcast to x's, was repeated.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace attn::reference
