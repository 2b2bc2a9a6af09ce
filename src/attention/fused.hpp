// attention() by the fused kernels: memory linear in tokens.
#pragma once

#include "attention/validate.hpp"

namespace attn {

// The kernels take these inputs and options.
bool can_fuse(const Tensor& q, const AttentionOptions& options);

AttentionResult fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                const AttentionOptions& options);

// `forward` is what fused_attention() gave for the same inputs.
AttentionGradient fused_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Problem& p, const AttentionOptions& options,
                                           const AttentionResult& forward);

}  // namespace attn
