// attention() by the fused kernels: memory linear in tokens.
#pragma once

#include "attention/validate.hpp"

namespace attn {

// The kernels take these inputs and options.
bool can_fuse(const Tensor& q, const AttentionOptions& options);

AttentionResult fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                const AttentionOptions& options);

}  // namespace attn
