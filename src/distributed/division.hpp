// Parameters one after the other as one row of elements, and the run of it that each rank has.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/distributed.hpp"
#include "attn/module.hpp"

namespace attn::distributed {

// A part of one of these parameters.
struct Piece {
  std::size_t parameter = 0;
  std::int64_t first = 0, count = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

class Division {
 public:
  Division(std::vector<Parameter*> parameters, int ranks);

  const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }
  std::int64_t elements() const { return starts_.back(); }
  std::int64_t start(std::size_t parameter) const { return starts_[parameter]; }
  // The parameter's elements of a row of all.
  Tensor in_row(const Tensor& row, std::size_t parameter) const;
  Run elements_of(int rank) const;
  // The pieces of a rank's run of elements, of at most `longest` elements each; without it whole ones.
  std::vector<Piece> pieces(int rank, std::int64_t longest) const;
  std::vector<Piece> pieces(int rank) const { return pieces(rank, elements() + 1); }

  static constexpr std::int64_t kUnit = 4096;  // elements: runs of a parameter that are never divided

 private:
  std::vector<Parameter*> parameters_;
  std::vector<std::int64_t> starts_, bounds_;  // of parameters, and at the end; of ranks
};

// A piece's elements of its parameter's value, or of what has its shape.
Tensor run_of(const Tensor& whole, const Piece& piece);
// Elements as a parameter of their own: of a matrix still a matrix, as weight decay asks that.
Tensor as_parameter(const Tensor& elements, std::size_t rank);

}  // namespace attn::distributed
