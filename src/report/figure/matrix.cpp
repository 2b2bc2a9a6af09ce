#include "report/figure/matrix.hpp"

#include <algorithm>
#include <cmath>

namespace attn::figure {

void Range::take(double value) noexcept {
  if (!std::isfinite(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
  if (value > 0) least = std::min(least, value);
}

void Range::take(const Range& other) noexcept {
  low = std::min(low, other.low);
  high = std::max(high, other.high);
  least = std::min(least, other.least);
}

Matrix matrix_of(const Tensor& source, const Tensor& keep, std::int64_t max_cells) {
  Matrix m;
  m.source_rows = source.size(0), m.source_columns = source.size(1);
  m.block_rows = (m.source_rows + max_cells - 1) / max_cells;
  m.block_columns = (m.source_columns + max_cells - 1) / max_cells;
  m.rows = (m.source_rows + m.block_rows - 1) / m.block_rows;
  m.columns = (m.source_columns + m.block_columns - 1) / m.block_columns;
  const auto cells = static_cast<std::size_t>(m.rows * m.columns);
  m.values.assign(cells, -std::numeric_limits<double>::infinity());
  m.kept.assign(cells, 0);
  for (std::int64_t i = 0; i < m.source_rows; ++i) {
    // Row by row: no float64 copy of the whole.
    const Tensor row = source.select(0, i).to(DType::f64).contiguous();
    const Tensor allowed = keep.defined() ? keep.select(0, i).to(DType::boolean).contiguous() : Tensor();
    for (std::int64_t j = 0; j < m.source_columns; ++j) {
      if (allowed.defined() && !allowed.data<bool>()[j]) continue;
      const double value = row.data<double>()[j];
      const auto cell = static_cast<std::size_t>(i / m.block_rows * m.columns + j / m.block_columns);
      double& drawn = m.values[cell];
      if (std::isnan(value) || value > drawn) drawn = value;  // a NaN stays: nothing is larger
      m.kept[cell] = 1;
      m.range.take(value);
    }
  }
  for (std::int64_t i = 0; i < m.rows; ++i) {
    double largest = 0;
    for (std::int64_t j = 0; j < m.columns; ++j) {
      if (std::isfinite(m.at(i, j))) largest = std::max(largest, m.at(i, j));
    }
    m.row_largest.push_back(largest);
  }
  return m;
}

}  // namespace attn::figure
