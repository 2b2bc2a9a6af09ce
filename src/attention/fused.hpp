// attention() by the fused kernels: memory linear in tokens.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "attention/validate.hpp"
#include "kernels/problem.hpp"

namespace attn {

class KVCache;

// The kernels take these inputs and options.
bool can_fuse(const Tensor& q, const AttentionOptions& options);

// `lse_rest`, where defined, gets what the float32 lse lacks: zeros (b, hq, tq) of float32 before.
AttentionResult fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Sizes& p,
                                const AttentionOptions& options, const Tensor& lse_rest = {});

// attention() with log-sum-exps of float64, which are not rounded to float32 before results are merged by them.
AttentionResult attention_to_merge(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);

// The same to a cache's items, or to one of them.
AttentionResult attention_to_merge(const Tensor& q, const KVCache& cache, std::optional<std::int64_t> item,
                                   const AttentionOptions& options);
// The sum of both as float64.
Tensor with_rest(const Tensor& lse, const Tensor& rest);

// These queries are few enough for the decode kernels, which take them as float32 whatever a cache holds.
bool can_decode(const Tensor& q, const Sizes& p, const AttentionOptions& options);

// Against the keys and values in `pages`, which are of q's dtype, or q is float32. `gather` copies them, (b, hkv, tk,
// d) and (b, hkv, tk, dv) of q's dtype: for the few rows that the kernels cannot do.
AttentionResult fused_attention(const Tensor& q, const kernels::Pages& pages, const Sizes& p,
                                const AttentionOptions& options,
                                const std::function<std::pair<Tensor, Tensor>()>& gather, const Tensor& lse_rest = {});

// `forward` is what fused_attention() gave for the same inputs.
AttentionGradient fused_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Sizes& p, const AttentionOptions& options,
                                           const AttentionResult& forward);

}  // namespace attn
