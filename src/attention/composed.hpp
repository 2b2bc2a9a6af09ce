// attention() and its gradient by the plain reference: each step of the chapter, once, and back.
// Takes every option and dtype, holds the (tq, tk) scores, and is the fused path's oracle and fallback.
#pragma once

#include <algorithm>
#include <cmath>

#include "attention/validate.hpp"

namespace attn {

AttentionResult composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Sizes& p,
                                   const AttentionOptions& options, Trace* trace);
// `forward` may be of more keys than these: the merged result of pieces, of which this is one.
AttentionGradient composed_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Sizes& p, const AttentionOptions& options,
                                              const AttentionResult* forward = nullptr);

// How much smaller the weights of a row are that sees other keys, too: its log-sum-exp, which is known within `close`,
// is larger than its own. Differences that are roundings say nothing.
template <class T>
T share_of(T own, T lse, double close) {
  if (std::isfinite(lse) && std::abs(own - lse) <= static_cast<T>(close) * std::max<T>(1, std::abs(lse))) return 1;
  return std::isinf(own) ? 0 : std::exp(std::min<T>(own - lse, 0));
}

}  // namespace attn
