// The user's score function over a whole tensor of scores, for the composed path.
#pragma once

#include <vector>

#include "attn/score_function.hpp"
#include "attn/tensor.hpp"

namespace attn {

// Positions of a batch item's first query and first key, and the number of the first head.
struct TileStart {
  std::int64_t query, key, head;
};

// scores (b, h, tq, tk), float32 or float64 → new ones.
Tensor apply_score_function(const Tensor& scores, const ScoreFunction& function, const std::vector<TileStart>& starts);

// d_new (b, h, tq, tk) → the gradient of `scores`, which apply_score_function() was given.
Tensor score_function_backward(const Tensor& d_new, const Tensor& scores, const ScoreFunction& function,
                               const std::vector<TileStart>& starts);

}  // namespace attn
