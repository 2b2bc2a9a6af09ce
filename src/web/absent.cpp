// The library in a page leaves these out, because a page has to be small. Estimates, which a page can ask for, say so.
#include "attention/fused.hpp"
#include "attn/error.hpp"
#include "experiment/estimates.hpp"

namespace attn {
// An estimate needs a gradient.
experiment::Estimates experiment::estimated_effects(LanguageModel&, const Tensor&, const EffectOptions&) {
  throw Error(Error::Kind::argument, "experiment", "effects of all heads, in a page", "estimates");
}

// A page shows every step, which the fused kernels do not hold.
bool can_fuse(const Tensor&, const AttentionOptions&) { return false; }
bool can_decode(const Tensor&, const Sizes&, const AttentionOptions&) { return false; }
AttentionResult fused_attention(const Tensor&, const Tensor&, const Tensor&, const Sizes&, const AttentionOptions&,
                                const Tensor&) {
  return {};
}
AttentionResult fused_attention(const Tensor&, const kernels::Pages&, const Sizes&, const AttentionOptions&,
                                const std::function<std::pair<Tensor, Tensor>()>&, const Tensor&) {
  return {};
}
AttentionGradient fused_attention_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Sizes&,
                                           const AttentionOptions&, const AttentionResult&) {
  return {};
}

}  // namespace attn
