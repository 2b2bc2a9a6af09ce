// The kernels' names of dtypes and precisions.
#pragma once

#include "attn/attention.hpp"
#include "kernels/problem.hpp"

namespace attn {

inline kernels::Element element(DType dtype) {
  if (dtype == DType::bf16) return kernels::Element::bf16;
  return dtype == DType::f16 ? kernels::Element::f16 : kernels::Element::f32;
}

inline kernels::Precision precision(Precision named) { return static_cast<kernels::Precision>(named); }

}  // namespace attn
