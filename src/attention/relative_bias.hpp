// A relative-position bias by distance, as the kernels take it, and their sums by distance as its table's gradient.
#pragma once

#include <span>

#include "attention/pieces.hpp"
#include "kernels/problem.hpp"

namespace attn {

// Throws Error (op "attention") for a table or a division that does not fit hq heads.
void check_relative_bias(const RelativeBias& bias, std::int64_t hq);

// Distances that pieces have, and that have a number of their own. A default-made one has none, and costs nothing.
class DistanceTable {
 public:
  DistanceTable() = default;
  DistanceTable(const RelativeBias& bias, std::span<const Piece> pieces);

  bool defined() const { return rows_.defined(); }
  kernels::DistanceBias for_kernels() const;
  // Zeros for the gradients of `rows` heads, and where kernels begin in them.
  Tensor zeros(std::int64_t rows) const;
  float* start(const Tensor& sums) const;
  // Adds such sums, of (…, hq) heads, to a float64 gradient of the table.
  void add_to(const Tensor& gradient, const Tensor& sums) const;

 private:
  std::int64_t distance(std::int64_t place) const;  // of a row's number
  std::int64_t width() const { return high_ - low_ + 1 + 2 * kernels::DistanceBias::kPad; }

  Tensor rows_;                       // float32 (hq, width)
  std::vector<std::int64_t> bucket_;  // of a row's number
  std::int64_t low_ = 0, high_ = 0;   // of how far a key is behind a query
};

// Returns the bias of each score for the composed path: (b or 1, hq, tq, tk) float64.
Tensor relative_bias(const Sizes& p, const AttentionOptions& options);
// The table's gradient from that of the scores; float64.
Tensor relative_bias_gradient(const Sizes& p, const AttentionOptions& options, const Tensor& d_scores);
// Returns what is added to the score of a key at a distance, in head h.
double relative_bias_at(const RelativeBias& bias, std::int64_t h, std::int64_t distance);

}  // namespace attn
