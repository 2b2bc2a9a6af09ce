// Heads side by side, on one scale.
#include <algorithm>
#include <cmath>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "report/figure/cells.hpp"
#include "report/figure/text.hpp"
#include "report/figure/title.hpp"
#include "report/figure/validate.hpp"

namespace attn::figure {
namespace {

constexpr double kPanelGap = 16, kPanelTitle = 20, kWidest = 1100;
constexpr std::int64_t kMostPanels = 1024;

// (layers, heads, queries, keys)
Tensor by_layer(const Tensor& weights) { return weights.rank() == 4 ? weights : weights.unsqueeze(0); }

struct Grid {
  std::int64_t layers, heads, columns, rows;
  Grid(std::int64_t l, std::int64_t h) : layers(l), heads(h) {
    // One layer is wrapped, several keep a row each.
    const auto wrapped = static_cast<std::int64_t>(std::ceil(std::sqrt(1.5 * static_cast<double>(h))));
    columns = l > 1 || h <= 4 ? h : wrapped;
    rows = l > 1 ? l : (h + columns - 1) / columns;
  }
};

std::string panel_name(const Grid& grid, std::int64_t layer, std::int64_t head) {
  const std::string name = "head " + std::to_string(head + 1);
  return grid.layers > 1 ? "layer " + std::to_string(layer + 1) + ", " + name : name;
}

}  // namespace

std::string heads(const Tensor& weights, const Options& options) {
  validate("heads", weights, 3, 4, "weights (heads, queries, keys) or (layers, heads, queries, keys)", options);
  const Tensor all = by_layer(weights);
  const Grid grid(all.size(0), all.size(1));
  if (grid.layers * grid.heads > kMostPanels) {
    throw Error(Error::Kind::shape, "heads", "at most 1024 heads of all layers", weights.shape().str());
  }
  const double side = std::clamp(kWidest / static_cast<double>(grid.columns) - kPanelGap, 48.0, 170.0);
  const auto max_cells = std::min(options.max_cells, static_cast<std::int64_t>(side / 1.5));
  std::vector<Matrix> panels;
  Range range;
  for (std::int64_t i = 0; i < grid.layers * grid.heads; ++i) {
    panels.push_back(matrix_of(all.select(0, i / grid.heads).select(0, i % grid.heads), options.keep, max_cells));
    range.take(panels.back().range);
  }
  const ValueScale scale(range, chosen_scale(options.scale, range, all.size(2), all.size(3)), options.colours);
  std::set<Kind> kinds;
  for (const Matrix& m : panels) kinds.merge(kinds_in(m, scale));

  const Matrix& first = panels.front();
  const double cell = std::min(side / static_cast<double>(std::max(first.rows, first.columns)), 32.0);
  const double width = static_cast<double>(first.columns) * cell, height = static_cast<double>(first.rows) * cell;
  const bool labelled = first.rows <= kMostLabelled && first.columns <= kMostLabelled && cell >= 9;
  const auto rows = labels_of(options.tokens, first.rows, first.block_rows, kShortLabel);
  const auto columns =
      labels_of(key_tokens_of(options, all.size(2), all.size(3)), first.columns, first.block_columns, kShortLabel);
  const double left = kMargin + (labelled ? row_labels_width(rows, cell) : 0);
  const double step_x = std::max(width, text_width(panel_name(grid, grid.layers - 1, grid.heads - 1), 11)) + kPanelGap;
  const double step_y = height + kPanelTitle + kPanelGap;
  const double right = left + static_cast<double>(grid.columns) * step_x;
  const Title title(options.title, right + 8 + kLegendWidth - 2 * kMargin);
  const double top =
      kMargin + title.height() + std::max(labelled ? column_labels_height(columns, cell) : 0, kLegendName);
  const double bottom = top + static_cast<double>(grid.rows) * step_y;
  const double bar = std::clamp(height, 80.0, 240.0);
  const double whole = std::max(bottom, top + kPanelTitle + legend_height(bar, kinds)) + kMargin;
  const Note note(pooling_note(first), right + 8 + kLegendWidth - 2 * kMargin);

  Svg svg(right + 8 + kLegendWidth, whole + note.height(), options.title.empty() ? "Heads" : label(options.title, 200));
  define_patterns(svg);
  title.draw(svg, kMargin, kMargin - 4);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(panels.size()); ++i) {
    const std::int64_t column = grid.layers > 1 ? i % grid.heads : i % grid.columns;
    const std::int64_t row = grid.layers > 1 ? i / grid.heads : i / grid.columns;
    const Placed at{left + static_cast<double>(column) * step_x, top + static_cast<double>(row) * step_y, cell, cell};
    if (labelled && column == 0) draw_row_labels(svg, rows, at);
    if (labelled && row == 0) draw_column_labels(svg, columns, at);
    const bool exact = labelled && !first.pooled();
    draw_cells(svg, panels[static_cast<std::size_t>(i)], scale, at,
               {.rows = exact ? &rows : nullptr, .columns = &columns});
    svg.text(at.x + width / 2, at.y + height + 15, panel_name(grid, i / grid.heads, i % grid.heads),
             {{"text-anchor", "middle"}, {"font-size", 11.0}});
  }
  draw_legend(svg, right + 8, top, bar, scale, kinds, options.values);
  note.draw(svg, kMargin, whole);
  return svg.finish();
}

}  // namespace attn::figure
