// The cells of one matrix, and the labels beside them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "report/figure/scale.hpp"

namespace attn::figure {

inline constexpr std::size_t kLongLabel = 18, kShortLabel = 12;  // columns, the second where figures stand side by side
inline constexpr std::int64_t kMostLabelled = 16;                // rows of a small figure that has labels

// One label for each drawn row or column, at most `columns` wide: of a pooled one its first token's.
std::vector<std::string> labels_of(const std::vector<std::string>& tokens, std::int64_t drawn, std::int64_t block,
                                   std::size_t columns);

struct Placed {
  double x, y, cell_width, cell_height;

  // Where a column and a row begin; with 0.5 more, their middles.
  double left(double column) const noexcept { return x + column * cell_width; }
  double top(double row) const noexcept { return y + row * cell_height; }
};

struct CellHints {
  const std::vector<std::string>* rows = nullptr;  // with both: "journey → Your: 0.15" under the mouse
  const std::vector<std::string>* columns = nullptr;
  bool numbers = false;  // written into the cells
};

void draw_cells(Svg& svg, const Matrix& m, const ValueScale& scale, const Placed& at, const CellHints& hints = {});
// Beside the cells; as many as there is room for.
void draw_row_labels(Svg& svg, const std::vector<std::string>& labels, const Placed& at);
void draw_column_labels(Svg& svg, const std::vector<std::string>& labels, const Placed& at);
// How far they reach to the left, and above.
double row_labels_width(const std::vector<std::string>& labels, double cell);
double column_labels_height(const std::vector<std::string>& labels, double cell);

std::set<Kind> kinds_in(const Matrix& m, const ValueScale& scale);
// "1024 × 1024, drawn as …", or nothing.
std::string pooling_note(const Matrix& m);

}  // namespace attn::figure
