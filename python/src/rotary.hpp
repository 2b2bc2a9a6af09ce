// Rotary positions of Python's arrays are read here.
#pragma once

#include <vector>

#include "attn/tensor.hpp"

namespace attn::python {

// The numbers of inv_freq (rotary_dim / 2). Throws Error (shape).
std::vector<float> float32s(const Tensor& t);

}  // namespace attn::python
