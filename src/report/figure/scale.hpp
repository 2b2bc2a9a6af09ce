// From a value to a colour, and the legend that tells which.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "report/figure/axis.hpp"
#include "report/figure/colour.hpp"
#include "report/figure/matrix.hpp"
#include "report/figure/svg.hpp"

namespace attn::figure {

enum class Kind { value, zero, masked, nan, minus_inf, plus_inf };  // zero: on a log scale, which has no place for it

// As legends write it: "masked", "NaN", "-inf"; "" for a value.
const char* name_of(Kind kind) noexcept;

// Returns what `scale` means for matrices of these sizes and values: never automatic.
Scale chosen_scale(Scale scale, const Range& range, std::int64_t rows, std::int64_t columns) noexcept;

class ValueScale {
 public:
  // Throws Error (argument) for values below 0 on the scales log and row.
  ValueScale(const Range& range, Scale scale, Colours colours);

  Kind kind(double value, bool kept) const noexcept;
  // Where a cell's value lies on the scale, from 0 to 1.
  double share(const Matrix& m, std::int64_t row, std::int64_t column) const noexcept;
  Rgb colour(const Matrix& m, std::int64_t row, std::int64_t column) const noexcept {
    return shade_at(share(m, row, column));
  }
  Rgb shade_at(double share) const noexcept {
    return by_sign() && colours_ != Colours::grey ? diverging_shade(share) : shade(colours_, share);
  }
  double share(double value) const noexcept { return axis_.at(value); }  // of a whole matrix, not by row
  const Axis& axis() const noexcept { return axis_; }
  const Range& range() const noexcept { return range_; }
  bool log() const noexcept { return scale_ == Scale::log; }
  bool by_row() const noexcept { return scale_ == Scale::row; }
  bool by_sign() const noexcept { return scale_ == Scale::diverging; }  // 0 is in the middle

 private:
  Range range_;
  Scale scale_;
  Colours colours_;
  Axis axis_;
};

// f(row, column, value, kind) for each cell.
template <class F>
void for_each_cell(const Matrix& m, const ValueScale& scale, F&& f) {
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t j = 0; j < m.columns; ++j) f(i, j, m.at(i, j), scale.kind(m.at(i, j), m.keeps(i, j)));
  }
}

// The ends of a legend's bar: "0" and "0.93", or "0" and "row's max".
struct LegendEnds {
  double low, high;
  std::string low_text, high_text;
};
LegendEnds legend_ends(const ValueScale& scale);
// "weight", "weight, log" or "weight, by row".
std::string legend_name(const ValueScale& scale, std::string_view values);

// The patterns that cells refer to; once a document.
void define_patterns(Svg& svg);
// One rectangle of a kind.
void draw_cell(Svg& svg, double x, double y, double width, double height, Kind kind, const char* value_fill,
               std::string_view hint = {});

inline constexpr double kLegendWidth = 96, kLegendName = 20;  // its name stands above `y`
// A bar of colours from the lowest to the highest value, then the other kinds that occur.
void draw_legend(Svg& svg, double x, double y, double height, const ValueScale& scale, const std::set<Kind>& kinds,
                 std::string_view name);
// The height that it needs.
double legend_height(double bar, const std::set<Kind>& kinds);

}  // namespace attn::figure
