// A product of bf16 pairs takes these. A number is one bf16 part, or two, which keep 16 bits of it, or three, which
// keep all 24. A product of two such is three products of parts, or six: high · high + high · low + low · high; with
// middle parts high · middle + middle · high + middle · middle too. What is left out is as small as what parts lose.
#pragma once

#include "kernels/simd/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// (rows, depth), unit stride in the depth. Strides count elements; parts go from the high one down.
struct Left {
  const std::uint16_t* data;
  std::int64_t row, part;
};

// (depth / 2, kColumns, 2): pairs along the depth.
struct Right {
  const std::uint16_t* data;
  std::int64_t part;
};

// Which operand passes by once: it is streamed, and leaves in L1 what is there.
enum class Streams { left, right };

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
