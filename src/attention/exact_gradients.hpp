// Gradients of queries whose numbers float32 does not hold, in double.
#pragma once

#include <span>

#include "attention/runs.hpp"

namespace attn {

// Query i of a part's item b and head h.
struct RowPlace {
  const Part* part;
  std::int64_t b, h, i;
};

// The gradients of what is added to scores.
class ScoreGradients {
 public:
  ScoreGradients(const Sizes& p, const AttentionOptions& options, const AttentionGradient& grad);

  // The gradient of a row's score of the part's key j.
  void add(const RowPlace& row, std::int64_t j, double d_score) const;

 private:
  const RelativeBias& relative_;
  Tensor cells_, table_;
};

// Adds the gradients of rows that share a key head to float32 ones, a row at a time, in memory of that head's keys.
void add_exact_gradients(std::span<const RowPlace> rows, const Call& call, const Incoming& in, const Sizes& p,
                         const AttentionOptions& options, const AttentionGradient& grad);

}  // namespace attn
