// matmul, with a say in what a zero of a does to b.
#pragma once

#include "attn/tensor.hpp"

namespace attn::reference {

// `skips`: a zero in a takes nothing from b, not even NaN, so that what is masked does not count.
enum class Zero { multiplies, skips };

Tensor matmul(const Tensor& a, const Tensor& b, Zero zero);

}  // namespace attn::reference
