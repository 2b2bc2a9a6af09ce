#include "report/figure/cells.hpp"

#include <algorithm>
#include <cmath>

#include "report/figure/text.hpp"

namespace attn::figure {
namespace {

constexpr double kLargest = 11, kSmallest = 7;  // label fonts

double font_for(double cell) { return std::clamp(cell * 0.8, kSmallest, kLargest); }

// Every how many labels one is written.
std::int64_t stride_for(double cell) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(9 / cell)));
}

bool upright(const std::vector<std::string>& labels, double cell) {
  return std::all_of(labels.begin(), labels.end(),
                     [&](const std::string& l) { return text_width(l, font_for(cell)) <= cell - 4; });
}

std::string value_text(double value, Kind kind, int digits) {
  if (kind == Kind::masked) return "masked";
  return short_number(value, digits);
}

// Two decimals where they tell something, so that the numbers of a column stand alike.
std::string cell_text(double value, Kind kind, const Range& range) {
  if (kind == Kind::minus_inf) return "-∞";
  if (kind == Kind::plus_inf) return "∞";
  const double largest = std::max(std::abs(range.low), std::abs(range.high));
  const bool told = value == 0 || std::abs(value) >= 0.005;
  return largest >= 0.1 && largest < 100 && told ? fixed(value, 2) : short_number(value, 2);
}

void draw_numbers(Svg& svg, const Matrix& m, const ValueScale& scale, const Placed& at) {
  svg.open("g", {{"font-size", 10.0}, {"text-anchor", "middle"}});
  for_each_cell(m, scale, [&](std::int64_t i, std::int64_t j, double value, Kind kind) {
    if (kind == Kind::masked || kind == Kind::nan) return;
    const char* ink = kind == Kind::value ? ink_on(scale.colour(m, i, j)) : kInk;
    svg.text(at.left(static_cast<double>(j) + 0.5), at.top(static_cast<double>(i) + 0.5) + 3.5,
             cell_text(value, kind, scale.range()), {{"fill", ink}});
  });
  svg.close("g");
}

// Neighbours that look the same are one rectangle.
void draw_runs(Svg& svg, const Matrix& m, const ValueScale& scale, const Placed& at) {
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t begin = 0, end = 0; begin < m.columns; begin = end) {
      const auto look = [&](std::int64_t j) {
        const Kind kind = scale.kind(m.at(i, j), m.keeps(i, j));
        return std::pair(kind, kind == Kind::value ? hex(scale.colour(m, i, j)) : std::string());
      };
      const auto [kind, fill] = look(begin);
      for (end = begin + 1; end < m.columns && look(end) == std::pair(kind, fill);) ++end;
      draw_cell(svg, at.left(static_cast<double>(begin)), at.top(static_cast<double>(i)),
                static_cast<double>(end - begin) * at.cell_width, at.cell_height, kind, fill.c_str());
    }
  }
}

}  // namespace

std::vector<std::string> labels_of(const std::vector<std::string>& tokens, std::int64_t drawn, std::int64_t block,
                                   std::size_t columns) {
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < drawn; ++i) {
    const auto source = static_cast<std::size_t>(i * block);
    labels.push_back(tokens.empty() ? std::to_string(source + 1) : label(tokens[source], columns));
  }
  return labels;
}

void draw_cells(Svg& svg, const Matrix& m, const ValueScale& scale, const Placed& at, const CellHints& hints) {
  svg.open("g", {{"shape-rendering", "crispEdges"}});
  if (hints.rows && hints.columns) {
    for_each_cell(m, scale, [&](std::int64_t i, std::int64_t j, double value, Kind kind) {
      const std::string fill = kind == Kind::value ? hex(scale.colour(m, i, j)) : "";
      draw_cell(svg, at.left(static_cast<double>(j)), at.top(static_cast<double>(i)), at.cell_width, at.cell_height,
                kind, fill.c_str(),
                (*hints.rows)[static_cast<std::size_t>(i)] + " → " + (*hints.columns)[static_cast<std::size_t>(j)] +
                    ": " + value_text(value, kind, 6));
    });
  } else {
    draw_runs(svg, m, scale, at);
  }
  svg.close("g");
  if (hints.numbers) draw_numbers(svg, m, scale, at);
  svg.rect(at.x, at.y, static_cast<double>(m.columns) * at.cell_width, static_cast<double>(m.rows) * at.cell_height,
           {{"fill", "none"}, {"stroke", "#bbbbbb"}, {"stroke-width", 0.5}});
}

void draw_row_labels(Svg& svg, const std::vector<std::string>& labels, const Placed& at) {
  const double font = font_for(at.cell_height);
  svg.open("g", {{"font-size", font}, {"text-anchor", "end"}});
  const std::int64_t stride = stride_for(at.cell_height);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(labels.size()); i += stride) {
    svg.text(at.x - 6, at.top(static_cast<double>(i) + 0.5) + font * 0.35, labels[static_cast<std::size_t>(i)]);
  }
  svg.close("g");
}

void draw_column_labels(Svg& svg, const std::vector<std::string>& labels, const Placed& at) {
  const double font = font_for(at.cell_width), y = at.y - 6;
  const bool level = upright(labels, at.cell_width);
  svg.open("g", {{"font-size", font}, {"text-anchor", level ? "middle" : "start"}});
  const std::int64_t stride = level ? 1 : stride_for(at.cell_width);
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(labels.size()); j += stride) {
    const double x = at.left(static_cast<double>(j) + 0.5) + (level ? 0 : font * 0.35);
    const std::string& text = labels[static_cast<std::size_t>(j)];
    if (level) {
      svg.text(x, y, text);
    } else {
      svg.text(x, y, text, {{"transform", "rotate(-90 " + num(x) + " " + num(y) + ")"}});
    }
  }
  svg.close("g");
}

double row_labels_width(const std::vector<std::string>& labels, double cell) {
  double widest = 0;
  for (const std::string& l : labels) widest = std::max(widest, text_width(l, font_for(cell)));
  return widest + 6;
}

double column_labels_height(const std::vector<std::string>& labels, double cell) {
  return upright(labels, cell) ? font_for(cell) + 6 : row_labels_width(labels, cell);
}

std::set<Kind> kinds_in(const Matrix& m, const ValueScale& scale) {
  std::set<Kind> kinds;
  for_each_cell(m, scale, [&](std::int64_t, std::int64_t, double, Kind kind) { kinds.insert(kind); });
  return kinds;
}

std::string pooling_note(const Matrix& m) {
  if (!m.pooled()) return {};
  const auto size = [](std::int64_t rows, std::int64_t columns) {
    return std::to_string(rows) + " × " + std::to_string(columns);
  };
  return size(m.source_rows, m.source_columns) + " drawn as " + size(m.rows, m.columns) +
         ": each cell is the largest of " + size(m.block_rows, m.block_columns);
}

}  // namespace attn::figure
