// Colours: scales for values, a palette for series. All readable with any kind of colour blindness.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "attn/figure.hpp"

namespace attn::figure {

struct Rgb {
  std::uint8_t r, g, b;
};

// "#rrggbb"
std::string hex(Rgb colour);
// The scale's colour, from 0 (dark) to 1 (bright).
Rgb shade(Colours colours, double share);
// PuOr's colour of a difference: violet at 0, white at 0.5, orange at 1.
Rgb diverging_shade(double share);
// Black or white, whichever reads better on `ground` (WCAG's relative luminance).
const char* ink_on(Rgb ground);

// For series: Okabe and Ito, "Color universal design" (2008), the dark ones first.
inline constexpr std::array<const char*, 7> kSeries{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                    "#e69f00", "#56b4e9", "#000000"};

}  // namespace attn::figure
