// One matrix, large.
#include <algorithm>

#include "attn/figure.hpp"
#include "report/figure/cells.hpp"
#include "report/figure/text.hpp"
#include "report/figure/title.hpp"
#include "report/figure/validate.hpp"

namespace attn::figure {
namespace {

constexpr double kSide = 480, kLongSide = 900;  // of the cells; of many, whose labels need room
constexpr double kSmallestCell = 4, kLabelledCell = 10, kLargestCell = 44, kLegendGap = 24;
constexpr std::int64_t kNumbered = 12, kExact = 32;

// As large as fits, and as a label needs while it can be had.
double cell_size(double longest) {
  return std::clamp(std::max(kSide / longest, std::min(kLabelledCell, kLongSide / longest)), kSmallestCell,
                    kLargestCell);
}

}  // namespace

std::string heatmap(const Tensor& weights, const Options& options) {
  validate("heatmap", weights, 2, 2, "a matrix (queries, keys) that is not empty", options);
  const Matrix m = matrix_of(weights, options.keep, options.max_cells);
  const Scale chosen = chosen_scale(options.scale, m.range, weights.size(0), weights.size(1));
  const ValueScale scale(m.range, chosen, options.colours);
  const auto kinds = kinds_in(m, scale);
  const auto rows = labels_of(options.tokens, m.rows, m.block_rows, kLongLabel);
  const auto columns =
      labels_of(key_tokens_of(options, weights.size(0), weights.size(1)), m.columns, m.block_columns, kLongLabel);

  const auto longest = static_cast<double>(std::max(m.rows, m.columns));
  const double cell = cell_size(longest), names = 18;
  const double left = kMargin + names + row_labels_width(rows, cell);
  const double whole_width = std::max(left + static_cast<double>(m.columns) * cell + kLegendGap + kLegendWidth, 280.0);
  const Title title(options.title, whole_width - 2 * kMargin);
  const double head = kMargin + title.height();
  const Placed at{left, head + names + column_labels_height(columns, cell), cell, cell};
  const double width = static_cast<double>(m.columns) * cell, height = static_cast<double>(m.rows) * cell;
  const double bar = std::clamp(height, 80.0, 240.0);
  const double bottom = at.y + std::max(height, legend_height(bar, kinds)) + kMargin;
  const Note note(pooling_note(m), whole_width - 2 * kMargin);

  Svg svg(whole_width, bottom + (m.pooled() ? 10 + note.height() : 0),
          options.title.empty() ? "Heatmap" : label(options.title, 200));
  define_patterns(svg);
  title.draw(svg, kMargin, kMargin - 4);
  svg.text(at.x + width / 2, head + 10, label(options.columns, 40), {{"text-anchor", "middle"}, {"fill", kFaint}});
  const double middle = at.y + height / 2;
  svg.text(kMargin + 10, middle, label(options.rows, 40),
           {{"text-anchor", "middle"},
            {"fill", kFaint},
            {"transform", "rotate(-90 " + num(kMargin + 10) + " " + num(middle) + ")"}});
  draw_row_labels(svg, rows, at);
  draw_column_labels(svg, columns, at);
  const bool exact = !m.pooled() && m.rows <= kExact && m.columns <= kExact;
  draw_cells(svg, m, scale, at,
             {.rows = exact ? &rows : nullptr,
              .columns = &columns,
              .numbers = !m.pooled() && m.rows <= kNumbered && m.columns <= kNumbered && cell >= 36});
  draw_legend(svg, at.x + width + kLegendGap, at.y, bar, scale, kinds, options.values);
  note.draw(svg, kMargin, bottom + 12);
  return svg.finish();
}

}  // namespace attn::figure
