// Figures of weights ask this of their input.
#pragma once

#include "attn/figure.hpp"

namespace attn::figure {

// Throws Error for a rank outside [low, high], no element, labels or a mask that do not fit. `expected` names the
// shapes.
void validate(const char* op, const Tensor& weights, std::size_t low, std::size_t high, const char* expected,
              const Options& options);
// The options' key labels, or the queries' where there are as many keys.
const std::vector<std::string>& key_tokens_of(const Options& options, std::int64_t queries, std::int64_t keys);

}  // namespace attn::figure
