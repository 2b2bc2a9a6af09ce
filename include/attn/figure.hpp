// Figures as SVG text, for papers and pages, and their small relatives for the terminal.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "attn/tensor.hpp"

// Every function returns a whole SVG 1.1 document on white, the same for the same input. Texts may hold any bytes:
// they are shown as text, and shortened where they are long. Lengths are in units of 1/96 inch.
namespace attn::figure {

// Scales from dark to bright that are even in lightness and readable with any kind of colour blindness:
// viridis (Smith and van der Walt 2015), cividis (Nuñez, Anderton and Renslow 2018), grey (bright to dark, for print).
enum class Colours { viridis, cividis, grey };

// ---- lines over steps: loss curves ------------------------------------------------------

struct Series {
  std::string name;
  std::vector<double> x, y;  // equally many; what is not finite leaves a gap
};

struct Axes {
  std::string title;
  std::string x, y;    // the axes' names
  bool log_y = false;  // values not above 0 leave a gap
  double width = 640, height = 400;
};

// One line a series, named above the plot; many points are thinned so that every peak stays.
// Throws Error for a series whose x and y differ in number, or a size below 160 × 120.
std::string line_chart(std::span<const Series> series, const Axes& axes);

// ---- in the terminal --------------------------------------------------------------------

enum class Characters { unicode, ascii };

// "▂▁▄▆█": values from the lowest to the highest, averaged to at most `columns`; "?" where one is not finite.
std::string sparkline(std::span<const double> values, std::size_t columns = 80,
                      Characters characters = Characters::unicode);

}  // namespace attn::figure
