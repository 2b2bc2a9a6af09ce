// What a product of bf16 pairs takes. A number is one bf16 part, or two, high + low, which keep 16 bits of it;
// a product of two such is three products of parts: high · high + high · low + low · high.
#pragma once

#include "kernels/unit/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// (rows, depth), unit stride in the depth. Strides count elements.
struct Left {
  const std::uint16_t* data;
  std::int64_t row, part;
};

// (depth / 2, kColumns, 2): pairs along the depth.
struct Right {
  const std::uint16_t* data;
  std::int64_t part;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
