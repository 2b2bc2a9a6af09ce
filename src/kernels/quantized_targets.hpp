// The kernels of products with quantised matrices that this program has.
#pragma once

#include <span>
#include <string_view>

#include "kernels/product/quantized_problem.hpp"

namespace attn::kernels {

struct QuantizedTarget {
  std::string_view name, of;  // `of`: the instruction set whose kernels it goes with
  const QuantizedKernel* kernel;
  bool supported;  // by this processor
};

// Lists all targets. Among those for one instruction set, the last that the processor has is the fastest.
std::span<const QuantizedTarget> quantized_targets();

// Returns the quantised kernels that go with these.
const QuantizedKernel& quantized(const Kernels& kernels);

}  // namespace attn::kernels
