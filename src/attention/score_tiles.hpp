// The user's score function over a whole tensor of scores, for the composed path.
#pragma once

#include "attn/score_function.hpp"
#include "attn/tensor.hpp"

namespace attn {

// scores (b, h, tq, tk), float32 or float64 → new ones.
Tensor apply_score_function(const Tensor& scores, const ScoreFunction& function);

// d_new (b, h, tq, tk) → the gradient of `scores`, which apply_score_function() was given.
Tensor score_function_backward(const Tensor& d_new, const Tensor& scores, const ScoreFunction& function);

// The function for a problem that is query i of head h of batch item b alone.
ScoreFunction at_place(const ScoreFunction& function, std::int64_t b, std::int64_t h, std::int64_t i);

}  // namespace attn
