// Four numbers that tell what a head does.
#pragma once

#include "attn/tensor.hpp"

namespace attn::report_page {

// Means over the queries that see any key.
struct HeadScores {
  double entropy = 0;   // -Σ w ln w, in nats: 0 looks at one key, ln(n) at n keys alike
  double distance = 0;  // Σ w |i - j|, in tokens
  double first = 0;     // weight on the first key: the attention sink
  double diagonal = 0;  // weight on the query's own token
};

HeadScores head_scores(const Tensor& weights);  // (tq, tk)

}  // namespace attn::report_page
