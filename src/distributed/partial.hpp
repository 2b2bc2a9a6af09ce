// A Partial is the result of a run of queries over the keys that it has met so far.
#pragma once

#include <vector>

#include "distributed/block.hpp"

namespace attn::distributed {

// Results over disjoint keys, merged one after the other in float64, by log-sum-exps of float64: the error of a row is
// that of one process or less, for any number of ranks.
class Partial {
 public:
  // (b, h, rows, dv) and (b, h, rows): of all heads, or of those from `first` on, of `heads`.
  void add(const AttentionResult& part) { add(part, 0, part.output.size(1)); }
  void add(const AttentionResult& part, std::int64_t first, std::int64_t heads);
  // A sink is one more part, without a value: (hq) of them, for rows of this shape.
  void add_sinks(const Tensor& sinks, const Shape& output);
  // To rows of a result; zeros and -inf where nothing was added.
  void store(const Tensor& output, const Tensor& lse) const;

 private:
  Tensor output_, lse_;
  std::vector<char> begun_;  // heads that something was added to
};

}  // namespace attn::distributed
