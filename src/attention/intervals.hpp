// Masks that let each query see one run of keys: causal, and whole.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/validate.hpp"

namespace attn {

// Query i sees keys [first[i], last[i]).
struct Intervals {
  std::vector<std::int32_t> first, last;
};

Intervals intervals(const Problem& p, const Mask& mask);

}  // namespace attn
