// Lines between tokens: queries on the left, keys on the right.
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

constexpr double kSpan = 260, kTallest = 1600, kStep = 20;
constexpr double kFaintest = 0.01;  // of the strongest: fainter lines are not seen
constexpr std::size_t kMostLines = 20000;

struct Link {
  std::int64_t head, query, key;
  double share;  // of the strongest weight
};

struct Links {
  std::vector<Link> drawn;  // strongest last, so that they lie on top
  std::size_t hidden = 0;   // above kFaintest, but too many
  std::int64_t nonfinite = 0;
  double strongest = 0;
};

Links links_of(const std::vector<Matrix>& heads, const ValueScale& scale) {
  Links links;
  for (const Matrix& m : heads) links.strongest = std::max(links.strongest, m.range.any() ? m.range.high : 0);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    for_each_cell(heads[h], scale, [&](std::int64_t i, std::int64_t j, double value, Kind kind) {
      links.nonfinite += kind == Kind::nan || kind == Kind::plus_inf;
      if (kind != Kind::value || links.strongest <= 0) return;
      const double share = scale.log() || scale.by_row() ? scale.share(heads[h], i, j) : value / links.strongest;
      if (share >= kFaintest) links.drawn.push_back({static_cast<std::int64_t>(h), i, j, share});
    });
  }
  std::stable_sort(links.drawn.begin(), links.drawn.end(),
                   [](const Link& a, const Link& b) { return a.share < b.share; });
  if (links.drawn.size() > kMostLines) {
    links.hidden = links.drawn.size() - kMostLines;
    links.drawn.erase(links.drawn.begin(), links.drawn.end() - kMostLines);
  }
  return links;
}

std::string note_of(const Links& links, const ValueScale& scale, const Matrix& first) {
  std::string note = scale.log() ? "as strong as the logarithm of the weight; "
                     : scale.by_row()
                         ? "as strong as the weight beside its query's largest; below 1 % of that not drawn; "
                         : "as strong as the weight; below 1 % of the largest not drawn; ";
  note.append("largest ").append(short_number(links.strongest, 4));
  if (links.hidden > 0) note.append("; ").append(std::to_string(links.hidden)).append(" weaker lines left out");
  if (links.nonfinite > 0) note.append("; ").append(std::to_string(links.nonfinite)).append(" NaN or inf not drawn");
  const std::string pooled = pooling_note(first);
  return pooled.empty() ? note : note + "; " + pooled;
}

void name_heads(Svg& svg, std::size_t heads, double top, double width) {
  double x = kMargin;
  for (std::size_t h = 0; h < heads; ++h) {
    const std::string name = "head " + std::to_string(h + 1);
    if (x + 18 + text_width(name, 11) > width - kMargin) {
      svg.text(x, top - 26, "…", {{"font-size", 11.0}});
      break;
    }
    svg.rect(x, top - 36, 12.0, 12.0, {{"fill", kSeries[h % kSeries.size()]}});
    svg.text(x + 17, top - 26, name, {{"font-size", 11.0}});
    x += 17 + text_width(name, 11) + 12;
  }
}

// Between which columns the lines go, and where the first row is.
struct Place {
  double left, right, top, step;
};

void draw_links(Svg& svg, const Links& links, std::span<const Matrix> heads, std::span<const std::string> queries,
                std::span<const std::string> keys, const Place& place) {
  const Matrix& first = heads.front();
  svg.open("g", {{"stroke-linecap", "round"}});
  const double thickest = std::clamp(place.step / 6, 0.6, 3.0);
  // Heads start and end side by side.
  const double apart = std::min(2.5, 0.6 * place.step / static_cast<double>(heads.size()));
  const auto height_of = [&](std::int64_t row, std::int64_t head) {
    return place.top + (static_cast<double>(row) + 0.5) * place.step +
           apart * (static_cast<double>(head) - static_cast<double>(heads.size() - 1) / 2);
  };
  for (const Link& link : links.drawn) {
    svg.line(place.left, height_of(link.query, link.head), place.right, height_of(link.key, link.head),
             {{"stroke", kSeries[static_cast<std::size_t>(link.head) % kSeries.size()]},
              {"stroke-width", num(thickest * (0.4 + 0.6 * link.share))},
              {"stroke-opacity", num(link.share)}},
             first.pooled()
                 ? std::string()
                 : queries[static_cast<std::size_t>(link.query)] + " → " + keys[static_cast<std::size_t>(link.key)] +
                       (heads.size() > 1 ? ", head " + std::to_string(link.head + 1) : "") + ": " +
                       short_number(heads[static_cast<std::size_t>(link.head)].at(link.query, link.key), 6));
  }
  svg.close("g");
}

// The same heads, in which the other queries see nothing.
Tensor of_query(const Tensor& heads, std::int64_t query) {
  if (query < 0 || query >= heads.size(1)) {
    throw Error(Error::Kind::argument, "lines", "a query from 0 to " + std::to_string(heads.size(1) - 1),
                std::to_string(query));
  }
  Tensor one = Tensor::zeros(heads.shape());
  one.slice(1, query, query + 1).copy_from(heads.slice(1, query, query + 1).to(DType::f32));
  return one;
}

}  // namespace

std::string lines(const Tensor& weights, const Options& options) {
  validate("lines", weights, 2, 3, "weights (queries, keys) or (heads, queries, keys)", options);
  Tensor all = weights.rank() == 3 ? weights : weights.unsqueeze(0);
  if (options.query) all = of_query(all, *options.query);
  std::vector<Matrix> heads;
  Range range;
  for (std::int64_t h = 0; h < all.size(0); ++h) {
    heads.push_back(matrix_of(all.select(0, h), options.keep, options.max_cells));
    range.take(heads.back().range);
  }
  const ValueScale scale(range, chosen_scale(options.scale, range, all.size(1), all.size(2)), options.colours);
  const Links links = links_of(heads, scale);
  const Matrix& first = heads.front();
  const auto queries = labels_of(options.tokens, first.rows, first.block_rows, kLongLabel);
  const auto keys =
      labels_of(key_tokens_of(options, all.size(1), all.size(2)), first.columns, first.block_columns, kLongLabel);

  const double step = std::min(kStep, kTallest / static_cast<double>(std::max(first.rows, first.columns)));
  const std::string rows = label(options.rows, 20), columns = label(options.columns, 20);
  const double left = kMargin + std::max(row_labels_width(queries, step), text_width(rows, 11) + 6);
  const double right = left + kSpan;
  const bool several = heads.size() > 1;
  const double height = static_cast<double>(std::max(first.rows, first.columns)) * step;
  const double width =
      std::max(right + std::max(row_labels_width(keys, step), text_width(columns, 11) + 6) + kMargin, 420.0);
  const Title title(options.title, width - 2 * kMargin);
  const double top = kMargin + title.height() + (several ? 22 : 0) + 20;
  const Note note(note_of(links, scale, first), width - 2 * kMargin);
  const double bottom = top + height + 24;

  Svg svg(width, bottom + note.height() - 6,
          options.title.empty() ? "Lines between tokens" : label(options.title, 200));
  title.draw(svg, kMargin, kMargin - 4);
  if (several) name_heads(svg, heads.size(), top, width);
  svg.text(left - 6, top - 6, rows, {{"text-anchor", "end"}, {"fill", kFaint}, {"font-size", 11.0}});
  svg.text(right + 6, top - 6, columns, {{"fill", kFaint}, {"font-size", 11.0}});
  draw_row_labels(svg, queries, {left, top, step, step});
  const double font = std::clamp(step * 0.8, 7.0, 11.0);
  svg.open("g", {{"font-size", font}});
  const auto stride = static_cast<std::size_t>(std::max(1.0, std::ceil(9 / step)));
  for (std::size_t j = 0; j < keys.size(); j += stride) {
    svg.text(right + 6, top + (static_cast<double>(j) + 0.5) * step + font * 0.35, keys[j]);
  }
  svg.close("g");
  draw_links(svg, links, heads, queries, keys, {left, right, top, step});
  note.draw(svg, kMargin, bottom);
  return svg.finish();
}

}  // namespace attn::figure
