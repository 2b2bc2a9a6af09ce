#include "attention/intervals.hpp"

#include <algorithm>

namespace attn {

Intervals intervals(const Problem& p, const Mask& mask) {
  const auto queries = static_cast<std::size_t>(p.tq);
  Intervals seen{std::vector<std::int32_t>(queries, 0),
                 std::vector<std::int32_t>(queries, static_cast<std::int32_t>(p.tk))};
  if (!mask.is_causal) return seen;
  const std::int64_t shift = mask.align == Align::bottom_right ? p.tk - p.tq : 0;
  for (std::int64_t i = 0; i < p.tq; ++i) {
    seen.last[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(i + shift + 1, 0, p.tk));
  }
  return seen;
}

}  // namespace attn
