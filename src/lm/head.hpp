// A language model's head: logits of hidden states, and the loss that needs no more than a part of them at a time.
#pragma once

#include <memory>

#include "attn/attention.hpp"
#include "attn/quantized.hpp"
#include "attn/tensor.hpp"

namespace attn {

struct Head {
  Tensor weight;  // (vocab_size, width)
  Precision precision = Precision::highest;
  double scale = 1;                                    // of the products
  double softcap = 0;                                  // then cap · tanh(logits / cap); 0 = none
  Tensor scales = {};                                  // of an int8 weight's rows
  std::shared_ptr<const QuantizedMatrix> blocks = {};  // of a weight that stays quantised
  bool requires_grad = true;                           // the weight; else a gradient has none of it
};

// hidden (…, width) → logits (…, vocab_size)
Tensor logits_of(const Head& head, const Tensor& hidden);

struct HeadGradient {
  Tensor hidden, weight;
};
// `logits` are logits_of's, which a softcap's gradient needs; without one they may be undefined.
HeadGradient logits_backward(const Head& head, const Tensor& d_logits, const Tensor& logits, const Tensor& hidden);

// Mean cross-entropy, in nats, of targets int64 (b, t), -100 where there is none, for hidden (b, t, width); with its
// gradient, if asked for. Logits are computed a part at a time.
struct HeadLoss {
  double loss = 0;
  std::int64_t count = 0;  // of targets
  HeadGradient gradient;
};
HeadLoss head_loss(const Head& head, const Tensor& hidden, const Tensor& targets, bool with_gradient);

}  // namespace attn
