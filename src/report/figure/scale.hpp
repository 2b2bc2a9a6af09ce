// From a value to a colour, and the legend that tells which.
#pragma once

#include <set>

#include "report/figure/axis.hpp"
#include "report/figure/colour.hpp"
#include "report/figure/matrix.hpp"
#include "report/figure/svg.hpp"

namespace attn::figure {

enum class Kind { value, zero, masked, nan, minus_inf, plus_inf };  // zero: on a log scale, which has no place for it

// As legends write it: "masked", "NaN", "-inf"; "" for a value.
const char* name_of(Kind kind) noexcept;

class ValueScale {
 public:
  // Throws Error (argument) for negative values on a log scale.
  ValueScale(const Range& range, Scale scale, Colours colours);

  Kind kind(double value, bool kept) const noexcept;
  Rgb colour(double value) const noexcept { return shade(colours_, axis_.at(value)); }
  const Axis& axis() const noexcept { return axis_; }
  const Range& range() const noexcept { return range_; }
  Colours colours() const noexcept { return colours_; }
  bool log() const noexcept { return log_; }

 private:
  Range range_;
  bool log_;
  Colours colours_;
  Axis axis_;
};

// The patterns that cells refer to; once a document.
void define_patterns(Svg& svg);
// One rectangle of a kind.
void draw_cell(Svg& svg, double x, double y, double width, double height, Kind kind, const char* value_fill,
               std::string_view hint = {});

inline constexpr double kLegendWidth = 96;
// A bar of colours from the lowest to the highest value, then the other kinds that occur.
void draw_legend(Svg& svg, double x, double y, double height, const ValueScale& scale, const std::set<Kind>& kinds,
                 std::string_view name);
// The height that it needs.
double legend_height(double bar, const std::set<Kind>& kinds);

}  // namespace attn::figure
