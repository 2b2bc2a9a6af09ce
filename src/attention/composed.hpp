// attention() and its gradient by the plain reference: each step of the chapter, once, and back.
// Takes every option and dtype, holds the (tq, tk) scores, and is the fused path's oracle and fallback.
#pragma once

#include "attention/validate.hpp"

namespace attn {

AttentionResult composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                   const AttentionOptions& options, Trace* trace);
AttentionGradient composed_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Problem& p, const AttentionOptions& options);

}  // namespace attn
