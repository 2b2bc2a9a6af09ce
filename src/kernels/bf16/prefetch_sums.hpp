// Sums of a product to come, on their way to L1.
#pragma once

#include "kernels/bf16/parts.hpp"
#include "kernels/rounding.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Those of 32 rows, fetched with every product of the 32 before, over `pairs` pairs of depth.
template <int Products>
class SumsAhead {
 public:
  SumsAhead(const float* next, std::int64_t pairs)
      : next_(next), step_(round_up(32 * kColumns * 16 / (pairs * Products), 16)) {}

  __attribute__((always_inline)) void operator()() {
    for (std::int64_t i = 0; i < step_; i += 16) __builtin_prefetch(next_ + i, 1);
    next_ += step_;
  }

 private:
  const float* next_;
  std::int64_t step_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
