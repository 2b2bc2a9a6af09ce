// The block-sparse part of a mask, cell by cell: for the composed path and for single rows.
#pragma once

#include "attention/validate.hpp"

namespace attn {

// (b or 1, hq or 1, tq, tk) boolean, of a mask that has blocks.
Tensor block_cells(const Sizes& p, const Mask& mask);

// (tk) boolean: the keys that query i of head h of batch item b sees by its blocks.
Tensor block_row(const Sizes& p, const Mask& mask, std::int64_t b, std::int64_t h, std::int64_t i);

}  // namespace attn
