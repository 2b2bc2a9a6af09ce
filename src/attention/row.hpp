// One query's attention by the plain reference, for the weights of chosen rows beside a fused output; and its options,
// also for gradients that are out of the kernels' reach.
#pragma once

#include "attention/pieces.hpp"

namespace attn {

// Query i of head h of batch item b, which is of `piece`: output (1, 1, 1, dv), lse (1, 1, 1), and, if options ask,
// weights (1, 1, 1, tk). Computed in the dtype of q.
AttentionResult composed_row(const Tensor& q, const Tensor& k, const Tensor& v, const Sizes& p,
                             const AttentionOptions& options, const Piece& piece, std::int64_t b, std::int64_t h,
                             std::int64_t i);

// What the options say of such a row, as a problem of its own.
AttentionOptions row_options(const Sizes& p, const AttentionOptions& of, const Piece& piece, std::int64_t b,
                             std::int64_t h, std::int64_t i);

}  // namespace attn
