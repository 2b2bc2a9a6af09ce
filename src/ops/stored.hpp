// How matrices are kept for generation: in float32, bfloat16, in int8 with a scale for each row, or in the blocks
// of their file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "attn/module.hpp"

namespace attn {

// Every matrix among the parameters, a vector stays as it is. Throws Error (dtype) for another dtype, and (argument)
// for int8 of a matrix with NaN or infinities, or that is in int8 already.
void store_matrices(std::span<Parameter* const> parameters, DType dtype);

// The matrix becomes these blocks.
void keep_blocks(Parameter& matrix, std::shared_ptr<const QuantizedMatrix> blocks);

// Rows [first, last) of a matrix, as they are kept, in float32 and contiguous.
Tensor rows_of(const Parameter& matrix, std::int64_t first, std::int64_t last);

}  // namespace attn
