#include "report/figure/scale.hpp"

#include <algorithm>
#include <cmath>

#include "attn/error.hpp"
#include "report/figure/text.hpp"

namespace attn::figure {
namespace {

constexpr double kDecades = 1e6, kFont = 11, kBar = 14, kSwatch = 14, kSwatchStep = 22;
constexpr const char* kWarning = "#c2185b";

Axis axis_of(const Range& range, bool log) {
  if (!log) return range.any() ? Axis(range.low, range.high, false) : Axis(0, 1, false);
  if (!std::isfinite(range.least)) return {0.1, 1, true};
  return {std::max(range.least, range.high / kDecades), range.high, true};
}

// The ends are the true range; between them round numbers that do not touch them.
std::vector<Tick> legend_ticks(const ValueScale& scale, double height) {
  const Range& range = scale.range();
  if (!range.any() || (scale.log() && !std::isfinite(range.least))) return {};
  const double low = scale.log() ? scale.axis().low() : range.low;
  if (low == range.high) return {{low, short_number(low, 4)}};
  std::vector<Tick> ticks{{low, short_number(low, 4)}};
  if (scale.log() && low > range.least) ticks[0].text = "≤ " + ticks[0].text;
  const double room = 16 / height;
  for (Tick& tick : scale.axis().ticks(std::max(2, static_cast<int>(height / 40)))) {
    const double at = scale.axis().at(tick.value);
    if (at > room && at < 1 - room) ticks.push_back(std::move(tick));
  }
  ticks.push_back({range.high, short_number(range.high, 4)});
  return ticks;
}

}  // namespace

const char* name_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::zero:
      return "0";
    case Kind::masked:
      return "masked";
    case Kind::nan:
      return "NaN";
    case Kind::minus_inf:
      return "-inf";
    case Kind::plus_inf:
      return "inf";
    case Kind::value:
      break;
  }
  return "";
}

ValueScale::ValueScale(const Range& range, Scale scale, Colours colours)
    : range_(range), log_(scale == Scale::log), colours_(colours), axis_(axis_of(range, scale == Scale::log)) {
  if (log_ && range.any() && range.low < 0) {
    throw Error(Error::Kind::argument, "figure", "no value below 0 on a log scale", short_number(range.low, 6));
  }
}

Kind ValueScale::kind(double value, bool kept) const noexcept {
  if (!kept) return Kind::masked;
  if (std::isnan(value)) return Kind::nan;
  if (std::isinf(value)) return value < 0 ? Kind::minus_inf : Kind::plus_inf;
  return log_ && value == 0 ? Kind::zero : Kind::value;
}

void define_patterns(Svg& svg) {
  svg.open("defs");
  svg.open("pattern", {{"id", "attn-nan"},
                       {"width", 6.0},
                       {"height", 6.0},
                       {"patternUnits", "userSpaceOnUse"},
                       {"patternTransform", "rotate(45)"}});
  svg.add("rect", {{"width", 6.0}, {"height", 6.0}, {"fill", "#ffffff"}});
  svg.add("rect", {{"width", 2.0}, {"height", 6.0}, {"fill", kWarning}});
  svg.close("pattern");
  svg.open("pattern", {{"id", "attn-minus-inf"},
                       {"width", 5.0},
                       {"height", 5.0},
                       {"patternUnits", "userSpaceOnUse"},
                       {"patternTransform", "rotate(-45)"}});
  svg.add("rect", {{"width", 5.0}, {"height", 5.0}, {"fill", "#ffffff"}});
  svg.add("rect", {{"width", 1.0}, {"height", 5.0}, {"fill", "#c4c4c4"}});
  svg.close("pattern");
  svg.close("defs");
}

void draw_cell(Svg& svg, double x, double y, double width, double height, Kind kind, const char* value_fill,
               std::string_view hint) {
  if (kind == Kind::plus_inf) {  // outlined
    const double inset = std::min(1.5, std::min(width, height) / 4);
    svg.add("rect",
            {{"x", x + inset},
             {"y", y + inset},
             {"width", width - 2 * inset},
             {"height", height - 2 * inset},
             {"fill", "#ffffff"},
             {"stroke", kWarning},
             {"stroke-width", inset}},
            {}, hint);
    return;
  }
  const char* fill = kind == Kind::nan         ? "url(#attn-nan)"
                     : kind == Kind::minus_inf ? "url(#attn-minus-inf)"
                     : kind == Kind::masked    ? "#f1f1f1"
                     : kind == Kind::zero      ? "#ffffff"
                                               : value_fill;
  svg.add("rect", {{"x", x}, {"y", y}, {"width", width}, {"height", height}, {"fill", fill}}, {}, hint);
}

double legend_height(double bar, const std::set<Kind>& kinds) {
  const auto others = static_cast<double>(kinds.size() - kinds.count(Kind::value));
  return bar + (others > 0 ? 12 + others * kSwatchStep : 0);
}

void draw_legend(Svg& svg, double x, double y, double height, const ValueScale& scale, const std::set<Kind>& kinds,
                 std::string_view name) {
  svg.open("g", {{"font-size", kFont}});
  svg.text(x, y - 12, label(name, 14));
  constexpr int steps = 64;
  svg.open("g", {{"shape-rendering", "crispEdges"}});
  for (int i = 0; i < steps; ++i) {
    const double share = 1 - (i + 0.5) / steps;
    svg.add("rect", {{"x", x},
                     {"y", y + height * i / steps},
                     {"width", kBar},
                     {"height", height / steps + 0.5},
                     {"fill", hex(shade(scale.colours(), share))}});
  }
  svg.close("g");
  for (const Tick& tick : legend_ticks(scale, height)) {
    const double at = y + height * (1 - scale.axis().at(tick.value));
    svg.add("line", {{"x1", x + kBar}, {"y1", at}, {"x2", x + kBar + 4}, {"y2", at}, {"stroke", kFaint}});
    svg.text(x + kBar + 8, at + 4, tick.text, {{"fill", kFaint}});
  }
  y += height + 16;
  for (const Kind kind : kinds) {
    if (kind == Kind::value) continue;
    draw_cell(svg, x, y, kSwatch, kSwatch, kind, "none");
    if (kind != Kind::plus_inf) {
      svg.add("rect", {{"x", x},
                       {"y", y},
                       {"width", kSwatch},
                       {"height", kSwatch},
                       {"fill", "none"},
                       {"stroke", "#bbbbbb"},
                       {"stroke-width", 0.5}});
    }
    svg.text(x + kSwatch + 8, y + 11, name_of(kind), {{"fill", kFaint}});
    y += kSwatchStep;
  }
  svg.close("g");
}

}  // namespace attn::figure
