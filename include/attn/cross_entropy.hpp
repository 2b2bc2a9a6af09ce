// The loss of a language model.
#pragma once

#include <cstdint>

#include "attn/tensor.hpp"

namespace attn {

struct CrossEntropy {
  double loss = 0;         // mean over the targets that are not ignored, in nats; 0 when all are (PyTorch: NaN)
  std::int64_t count = 0;  // how many those are
};
// Takes float32 logits (…, vocab) and int64 targets (…). A target of -100 is ignored. Throws Error for other dtypes
// (dtype) or shapes (shape), and for a target that is no index of a row (argument).
CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets);
// The same. It leaves factor · d(sum of losses)/d(logits) in place of the logits, which must be contiguous (shape).
CrossEntropy cross_entropy_in_place(const Tensor& logits, const Tensor& targets, double factor);

}  // namespace attn
