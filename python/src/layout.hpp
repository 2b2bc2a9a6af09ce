// Any number of leading dimensions, as PyTorch broadcasts them, as the operator's (b, h, t, d) and back.
#pragma once

#include "attn/tensor.hpp"

namespace attn::python {

struct Layout {
  Tensor q, k, v;     // (b, h, t, d), views where strides allow it
  Shape leading;      // of the result: its dimensions before (t, d)
  std::size_t batch;  // how many of them are behind b
};

// query (…, hq, tq, d)  key (…, hkv, tk, d)  value (…, hkv, tk, dv), or without h: sizes before (t, d) broadcast. With
// grouped heads (PyTorch's enable_gqa) hq may be a multiple of hkv. Throws Error (shape) where they do not fit.
Layout layout(const Tensor& query, const Tensor& key, const Tensor& value, bool grouped);

// A mask that broadcasts to (…, h, tq, tk), as one that broadcasts to (b, h, tq, tk).
Tensor mask_of(const Tensor& mask, const Layout& layout);

// A result (b, h, rest…) as (leading…, rest…).
Tensor unfold(const Tensor& result, const Layout& layout);

}  // namespace attn::python
