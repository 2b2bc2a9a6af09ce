#include <algorithm>
#include <utility>

#include "attn/attention.hpp"
#include "attn/error.hpp"

namespace attn {

Mask Mask::causal(Align align) {
  Mask mask;
  mask.is_causal = true;
  mask.align = align;
  return mask;
}

Mask Mask::boolean(Tensor keep) {
  Mask mask;
  mask.keep = std::move(keep);
  return mask;
}

Mask Mask::additive(Tensor bias) {
  Mask mask;
  mask.bias = std::move(bias);
  return mask;
}

Mask operator&(Mask a, const Mask& b) {
  const auto once = [](bool in_a, bool in_b, const char* part) {
    if (in_a && in_b) throw Error(Error::Kind::argument, "mask", std::string("one ") + part + " part", "two");
  };
  once(a.is_causal, b.is_causal, "causal");
  once(a.keep.defined(), b.keep.defined(), "boolean");
  once(a.bias.defined(), b.bias.defined(), "additive");
  if (b.is_causal) a.is_causal = true, a.align = b.align;
  if (b.keep.defined()) a.keep = b.keep;
  if (b.bias.defined()) a.bias = b.bias;
  return a;
}

Tensor causal_keep(std::int64_t tq, std::int64_t tk, Align align) {
  Tensor keep = Tensor::zeros({tq, tk}, DType::boolean);
  const std::int64_t shift = align == Align::bottom_right ? tk - tq : 0;
  for (std::int64_t i = 0; i < tq; ++i) {
    keep.select(0, i).slice(0, 0, std::clamp<std::int64_t>(i + shift + 1, 0, tk)).fill(1);
  }
  return keep;
}

}  // namespace attn
