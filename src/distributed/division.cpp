#include "distributed/division.hpp"

#include <algorithm>

namespace attn::distributed {

// Ranks' runs are as even as undivided units let them be.
Division::Division(std::vector<Parameter*> parameters, int ranks) : parameters_(std::move(parameters)) {
  std::vector<std::int64_t> units;  // where they begin
  std::int64_t elements = 0;
  for (const Parameter* p : parameters_) {
    starts_.push_back(elements);
    for (std::int64_t first = 0; first < p->value.numel(); first += kUnit) units.push_back(elements + first);
    elements += p->value.numel();
  }
  starts_.push_back(elements), units.push_back(elements);
  for (int r = 0; r <= ranks; ++r) bounds_.push_back(*std::ranges::lower_bound(units, elements * r / ranks));
}

Tensor Division::in_row(const Tensor& row, std::size_t parameter) const {
  return row.slice(0, starts_[parameter], starts_[parameter + 1]).view(parameters_[parameter]->value.shape());
}

Run Division::elements_of(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return {bounds_[at], bounds_[at + 1]};
}

std::vector<Piece> Division::pieces(int rank, std::int64_t longest) const {
  std::vector<Piece> all;
  const Run run = elements_of(rank);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::int64_t last = std::min(run.last, starts_[i + 1]) - starts_[i];
    std::int64_t first = std::max(run.first, starts_[i]) - starts_[i];
    for (; first < last; first += longest) all.push_back({i, first, std::min(longest, last - first)});
  }
  return all;
}

Tensor run_of(const Tensor& whole, const Piece& piece) {
  return as_parameter(whole.view({whole.numel()}).slice(0, piece.first, piece.first + piece.count), whole.rank());
}

Tensor as_parameter(const Tensor& elements, std::size_t rank) { return rank >= 2 ? elements.unsqueeze(0) : elements; }

}  // namespace attn::distributed
