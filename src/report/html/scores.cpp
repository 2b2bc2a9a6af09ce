#include "report/html/scores.hpp"

#include <cmath>

namespace attn::report_page {

HeadScores head_scores(const Tensor& weights) {
  const std::int64_t queries = weights.size(0), keys = weights.size(1);
  const Tensor whole = weights.contiguous();
  HeadScores sum;
  double rows = 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const float* row = whole.data<float>() + i * keys;
    bool any = false;
    for (std::int64_t j = 0; j < keys; ++j) {
      const double w = row[j];
      if (w == 0) continue;
      any = true;
      sum.entropy -= w * std::log(w);
      sum.distance += w * static_cast<double>(std::abs(i - j));
      if (j == 0) sum.first += w;
      if (j == i) sum.diagonal += w;
    }
    rows += any;
  }
  if (rows == 0) return {};
  return {sum.entropy / rows, sum.distance / rows, sum.first / rows, sum.diagonal / rows};
}

}  // namespace attn::report_page
