#include "report/figure/scale.hpp"

#include <algorithm>
#include <cmath>

#include "attn/error.hpp"
#include "report/figure/text.hpp"

namespace attn::figure {
namespace {

constexpr double kDecades = 1e6, kLegendFont = 11, kBar = 14, kSwatch = 14, kSwatchStep = 22;
constexpr const char* kWarning = "#c2185b";

Axis axis_of(const Range& range, Scale scale) {
  if (scale == Scale::row || !range.any()) return {0, 1, false};
  if (scale == Scale::diverging) {
    const double most = std::max(std::abs(range.low), std::abs(range.high));
    return {-most, most, false};
  }
  if (scale != Scale::log) return {std::min(range.low, 0.0), range.high, false};
  if (!std::isfinite(range.least)) return {0.1, 1, true};
  return {std::max(range.least, range.high / kDecades), range.high, true};
}

// Between the ends round numbers that do not touch them.
std::vector<Tick> legend_ticks(const ValueScale& scale, double height) {
  const Range& range = scale.range();
  if (!range.any() || (scale.log() && !std::isfinite(range.least))) return {};
  const LegendEnds ends = legend_ends(scale);
  if (ends.low == ends.high) return {{ends.low, ends.low_text}};
  std::vector<Tick> ticks{{ends.low, ends.low_text}};
  const double room = 16 / height;
  for (Tick& tick : scale.axis().ticks(std::max(2, static_cast<int>(height / 40)))) {
    const double at = scale.axis().at(tick.value);
    if (!scale.by_row() && at > room && at < 1 - room) ticks.push_back(std::move(tick));
  }
  ticks.push_back({ends.high, ends.high_text});
  return ticks;
}

void define_hatch(Svg& svg, std::string_view id, double step, double stroke, int degrees, const char* colour) {
  svg.open("pattern", {{"id", id},
                       {"width", step},
                       {"height", step},
                       {"patternUnits", "userSpaceOnUse"},
                       {"patternTransform", "rotate(" + std::to_string(degrees) + ")"}});
  svg.add("rect", {{"width", step}, {"height", step}, {"fill", "#ffffff"}});
  svg.add("rect", {{"width", stroke}, {"height", step}, {"fill", colour}});
  svg.close("pattern");
}

}  // namespace

const char* name_of(Kind kind) noexcept {
  constexpr const char* names[] = {"", "0", "masked", "NaN", "-inf", "inf"};  // in the order of Kind
  return names[static_cast<std::size_t>(kind)];
}

Scale chosen_scale(Scale scale, const Range& range, std::int64_t rows, std::int64_t columns) noexcept {
  constexpr std::int64_t kLong = 12;
  if (scale != Scale::automatic) return scale;
  const bool below_zero = range.any() && range.low < 0;
  return !below_zero && std::max(rows, columns) >= kLong ? Scale::row : Scale::linear;
}

ValueScale::ValueScale(const Range& range, Scale scale, Colours colours)
    : range_(range), scale_(scale), colours_(colours), axis_(axis_of(range, scale)) {
  if ((log() || by_row()) && range.any() && range.low < 0) {
    throw Error(Error::Kind::argument, "figure",
                std::string("no value below 0 on a ") + (log() ? "log scale" : "scale by row"),
                short_number(range.low, 6));
  }
}

double ValueScale::share(const Matrix& m, std::int64_t row, std::int64_t column) const noexcept {
  const double value = m.at(row, column);
  if (!by_row()) return axis_.at(value);
  const double largest = m.row_largest[static_cast<std::size_t>(row)];
  return largest > 0 ? value / largest : 0;
}

LegendEnds legend_ends(const ValueScale& scale) {
  const Range& range = scale.range();
  if (scale.by_row()) return {0, 1, "0", "row's max"};
  if (scale.by_sign()) {
    const double most = scale.axis().high();
    return {-most, most, short_number(-most, 4), short_number(most, 4)};
  }
  const double low = scale.axis().low() < range.high ? scale.axis().low() : range.high;
  const bool cut = scale.log() && low > range.least;
  return {low, range.high, (cut ? "≤ " : "") + short_number(low, 4), short_number(range.high, 4)};
}

std::string legend_name(const ValueScale& scale, std::string_view values) {
  return std::string(values) + (scale.by_row() ? ", by row" : scale.log() ? ", log" : "");
}

Kind ValueScale::kind(double value, bool kept) const noexcept {
  if (!kept) return Kind::masked;
  if (std::isnan(value)) return Kind::nan;
  if (std::isinf(value)) return value < 0 ? Kind::minus_inf : Kind::plus_inf;
  return log() && value == 0 ? Kind::zero : Kind::value;
}

void define_patterns(Svg& svg) {
  svg.open("defs");
  define_hatch(svg, "attn-nan", 6, 2, 45, kWarning);
  define_hatch(svg, "attn-minus-inf", 5, 1, -45, "#c4c4c4");
  define_hatch(svg, "attn-masked", 5, 1, 45, "#d0d0d0");
  svg.close("defs");
}

void draw_cell(Svg& svg, double x, double y, double width, double height, Kind kind, const char* value_fill,
               std::string_view hint) {
  if (kind == Kind::plus_inf) {  // outlined
    const double inset = std::min(1.5, std::min(width, height) / 4);
    svg.rect(x + inset, y + inset, width - 2 * inset, height - 2 * inset,
             {{"fill", "#ffffff"}, {"stroke", kWarning}, {"stroke-width", inset}}, hint);
    return;
  }
  const char* fill = kind == Kind::nan         ? "url(#attn-nan)"
                     : kind == Kind::minus_inf ? "url(#attn-minus-inf)"
                     : kind == Kind::masked    ? "url(#attn-masked)"
                     : kind == Kind::zero      ? "#ffffff"
                                               : value_fill;
  svg.rect(x, y, width, height, {{"fill", fill}}, hint);
}

double legend_height(double bar, const std::set<Kind>& kinds) {
  const auto others = static_cast<double>(kinds.size() - kinds.count(Kind::value));
  return bar + (others > 0 ? 12 + others * kSwatchStep : 0);
}

void draw_legend(Svg& svg, double x, double y, double height, const ValueScale& scale, const std::set<Kind>& kinds,
                 std::string_view name) {
  svg.open("g", {{"font-size", kLegendFont}});
  svg.text(x, y - 12, label(legend_name(scale, name), 16));
  constexpr int steps = 64;
  svg.open("g", {{"shape-rendering", "crispEdges"}});
  for (int i = 0; i < steps; ++i) {
    const double share = 1 - (i + 0.5) / steps;
    svg.rect(x, y + height * i / steps, kBar, height / steps + 0.5, {{"fill", hex(scale.shade_at(share))}});
  }
  svg.close("g");
  for (const Tick& tick : legend_ticks(scale, height)) {
    const double at = y + height * (1 - scale.axis().at(tick.value));
    svg.line(x + kBar, at, x + kBar + 4, at, {{"stroke", kFaint}});
    svg.text(x + kBar + 8, at + 4, tick.text, {{"fill", kFaint}});
  }
  y += height + 16;
  for (const Kind kind : kinds) {
    if (kind == Kind::value) continue;
    draw_cell(svg, x, y, kSwatch, kSwatch, kind, "none");
    if (kind != Kind::plus_inf) {
      svg.rect(x, y, kSwatch, kSwatch, {{"fill", "none"}, {"stroke", "#bbbbbb"}, {"stroke-width", 0.5}});
    }
    svg.text(x + kSwatch + 8, y + 11, name_of(kind), {{"fill", kFaint}});
    y += kSwatchStep;
  }
  svg.close("g");
}

}  // namespace attn::figure
