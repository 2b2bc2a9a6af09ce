// The steps of a forward pass as a strip.
#include "attn/steps.hpp"

#include <algorithm>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "report/figure/cells.hpp"
#include "report/figure/text.hpp"
#include "report/figure/title.hpp"
#include "report/html/blocks.hpp"

namespace attn::figure {
namespace {

constexpr double kThumb = 96, kStepGap = 34, kCaption = 44;
constexpr std::int64_t kMaxCells = 64;

struct Thumb {
  std::string name;
  Shape shape;
  Matrix matrix;
};
using Column = std::vector<Thumb>;

void require_index(const char* what, std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < count) return;
  throw Error(Error::Kind::argument, "steps", std::string(what) + " from 0 to " + std::to_string(count - 1),
              std::to_string(index));
}

std::vector<Column> thumbs_of(const report_page::Block& block, std::int64_t head) {
  std::vector<Column> columns;
  const Tensor keep = block.keep();
  for (const auto& [name, tensor] : block.steps) {
    if (tensor.numel() == 0) continue;
    const Tensor shown = report_page::of_head(tensor, head, block.weights().size(0));
    if (columns.empty() || !find_step(name)->of_keys) columns.emplace_back();  // keys and values stand under queries
    columns.back().push_back(
        {name, tensor.shape(),
         matrix_of(shown, find_step(name)->pairs() && keep.defined() ? keep.select(0, head) : Tensor(), kMaxCells)});
  }
  return columns;
}

double cell_of(const Matrix& m) { return std::min(kThumb / static_cast<double>(std::max(m.rows, m.columns)), 18.0); }
double width_of(const Thumb& t) { return std::max(static_cast<double>(t.matrix.columns) * cell_of(t.matrix), 76.0); }
double height_of(const Thumb& t) { return static_cast<double>(t.matrix.rows) * cell_of(t.matrix) + kCaption; }

double width_of(const Column& column) {
  double width = 0;
  for (const Thumb& t : column) width = std::max(width, width_of(t));
  return width;
}
double height_of(const Column& column) {
  double height = 0;
  for (const Thumb& t : column) height += height_of(t);
  return height;
}

void draw_thumb(Svg& svg, const Thumb& thumb, double x, double y, double width, Colours colours) {
  const Matrix& m = thumb.matrix;
  const double cell = cell_of(m), drawn = static_cast<double>(m.columns) * cell;
  const ValueScale scale(m.range, Scale::linear, colours);
  draw_cells(svg, m, scale, {x + (width - drawn) / 2, y, cell, cell});
  const double below = y + static_cast<double>(m.rows) * cell, middle = x + width / 2;
  svg.text(middle, below + 14, thumb.name, {{"text-anchor", "middle"}, {"font-size", 11.0}});
  svg.text(middle, below + 25, thumb.shape.str(), {{"text-anchor", "middle"}, {"font-size", 9.0}, {"fill", kFaint}});
  const std::string range = m.range.any()
                                ? short_number(std::min(m.range.low, 0.0), 3) + " … " + short_number(m.range.high, 3)
                                : "nothing finite";
  svg.text(middle, below + 36, range, {{"text-anchor", "middle"}, {"font-size", 9.0}, {"fill", kFaint}});
}

void draw_arrow(Svg& svg, double x, double y) {
  svg.add("path", {{"d", std::string("M").append(num(x)).append(" ").append(num(y)).append("h14m-5 -4l5 4l-5 4")},
                   {"fill", "none"},
                   {"stroke", kFaint}});
}

// "NaN hatched, -inf outlined", of what occurs.
std::string note_of(const std::vector<Column>& columns, std::int64_t head, std::int64_t heads) {
  std::set<Kind> kinds;
  std::string pooled;
  for (const Column& column : columns) {
    for (const Thumb& t : column) {
      kinds.merge(kinds_in(t.matrix, ValueScale(t.matrix.range, Scale::linear, Colours::viridis)));
      if (pooled.empty() && t.matrix.pooled())
        pooled = "longer sides pooled to 64 cells, each the largest of its block";
    }
  }
  std::string note = "each step from 0, or its lowest below 0, to its largest; dark is low";
  if (heads > 1) note.append("; head ").append(std::to_string(head + 1)).append(" of ").append(std::to_string(heads));
  if (kinds.contains(Kind::masked)) note.append("; masked hatched");
  if (kinds.contains(Kind::nan)) note.append("; NaN hatched");
  if (kinds.contains(Kind::minus_inf)) note.append("; -inf in grey lines");
  if (kinds.contains(Kind::plus_inf)) note.append("; inf outlined in red");
  return pooled.empty() ? note : note + "; " + pooled;
}

}  // namespace

std::string steps(const Trace& trace, const StepsOptions& options) {
  const report_page::Blocks blocks = report_page::arrange(trace, options.item);
  require_index("a layer", options.layer, static_cast<std::int64_t>(blocks.blocks.size()));
  const auto& block = blocks.blocks[static_cast<std::size_t>(options.layer)];
  const std::int64_t heads = block.weights().size(0);
  require_index("a head", options.head, heads);
  if (!options.tokens.empty() && static_cast<std::int64_t>(options.tokens.size()) != blocks.queries) {
    throw Error(Error::Kind::shape, "steps", std::to_string(blocks.queries) + " tokens, one for each query",
                std::to_string(options.tokens.size()));
  }
  const std::vector<Column> columns = thumbs_of(block, options.head);

  const Matrix& first = columns.front().front().matrix;
  const auto tokens = labels_of(options.tokens, first.rows, first.block_rows, kShortLabel);
  const bool labelled = first.rows <= kMostLabelled;
  const double indent = kMargin + (labelled ? row_labels_width(tokens, cell_of(first)) : 0);
  double width = indent, height = 0;
  for (const Column& column : columns) {
    width += width_of(column) + kStepGap;
    height = std::max(height, height_of(column));
  }
  const std::string note = note_of(columns, options.head, heads);
  const double whole_width = std::max(width - kStepGap + kMargin, 2 * kMargin + text_width(note, 10));
  const Title title(options.title, whole_width - 2 * kMargin);
  const double top = kMargin + 4 + title.height();
  Svg svg(whole_width, top + height + 36, options.title.empty() ? "Steps" : label(options.title, 200));
  define_patterns(svg);
  title.draw(svg, kMargin, kMargin - 4);
  double x = indent;
  for (const Column& column : columns) {
    double y = top + (height - height_of(column)) / 2;  // all centred on one line
    if (&column != &columns.front()) draw_arrow(svg, x - kStepGap + 9, top + (height - kCaption) / 2);
    if (labelled && &column == &columns.front()) {
      const double cell = cell_of(first), drawn = static_cast<double>(first.columns) * cell;
      draw_row_labels(svg, tokens, {x + (width_of(column) - drawn) / 2, y, cell, cell});
    }
    for (const Thumb& thumb : column) {
      draw_thumb(svg, thumb, x, y, width_of(column), options.colours);
      y += height_of(thumb);
    }
    x += width_of(column) + kStepGap;
  }
  svg.text(kMargin, top + height + 20, note, {{"font-size", 10.0}, {"fill", kFaint}});
  return svg.finish();
}

}  // namespace attn::figure
