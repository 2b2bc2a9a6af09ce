// A matrix on its way to be drawn: doubles, pooled where it is too large to see.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "attn/tensor.hpp"

namespace attn::figure {

// A Range spans finite values.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double least = std::numeric_limits<double>::infinity();  // the smallest above 0
  bool any() const noexcept { return low <= high; }
  void take(double value) noexcept;
  void take(const Range& other) noexcept;
};

struct Matrix {
  std::int64_t rows = 0, columns = 0;                // as drawn
  std::int64_t source_rows = 0, source_columns = 0;  // as given
  std::int64_t block_rows = 1, block_columns = 1;    // source cells in a drawn one
  std::vector<double> values;                        // row-major
  std::vector<char> kept;                            // 0: every source cell is masked
  Range range;                                       // of the kept source cells
  std::vector<double> row_largest;                   // the largest finite value of each drawn row, or 0

  bool pooled() const noexcept { return block_rows > 1 || block_columns > 1; }
  double at(std::int64_t row, std::int64_t column) const { return values[index(row, column)]; }
  bool keeps(std::int64_t row, std::int64_t column) const { return kept[index(row, column)] != 0; }

 private:
  std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * columns + column);
  }
};

// source (rows, columns) of any dtype, keep of the same shape or undefined. A drawn cell is the largest of its kept
// ones, NaN if any of those is: what is wrong must not hide.
Matrix matrix_of(const Tensor& source, const Tensor& keep, std::int64_t max_cells);

}  // namespace attn::figure
