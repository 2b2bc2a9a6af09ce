// Figures as SVG text, for papers and pages, and their small relatives for the terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/tensor.hpp"
#include "attn/trace.hpp"

// Every function returns a whole SVG 1.1 document on white, the same for the same input. Texts may hold any bytes:
// they are shown as text, and shortened where they are long. Lengths are in units of 1/96 inch.
namespace attn::figure {

// Scales from dark to bright that are even in lightness and readable with any kind of colour blindness:
// viridis (Smith and van der Walt 2015), cividis (Nuñez, Anderton and Renslow 2018), grey (bright to dark, for print).
enum class Colours { viridis, cividis, grey };

// How values become colours. linear: from 0, or from the smallest value where there are values below 0, to the largest.
// log: from the smallest value above 0, over at most six decades, to the largest. row: each row from 0 to its own
// largest value, so that rows of many small weights can be read as well as rows of few large ones. automatic: row for
// matrices of 12 and more rows or columns without values below 0, else linear. diverging: from the largest magnitude
// below 0 to the same above, with 0 in the middle, for differences; its colours are PuOr's (Harrower and Brewer 2003),
// which go from violet by white to orange, and with Colours::grey grey is 0.
enum class Scale { automatic, linear, log, row, diverging };

// ---- attention weights, and other matrices ----------------------------------------------

struct Options {
  std::string title = {};
  std::vector<std::string> tokens = {};      // of the queries: one a row; none: numbers from 1
  std::vector<std::string> key_tokens = {};  // of the keys: one a column; none: `tokens` where there are as many
  Tensor keep = {};                          // boolean (tq, tk), false where a key is masked; undefined: nothing is
  Scale scale = Scale::automatic;
  Colours colours = Colours::viridis;
  std::string rows = "queries", columns = "keys", values = "weight";  // names of the axes and of the legend
  std::int64_t max_cells = 128;            // along a side; longer ones are pooled, each cell the largest of its block
  std::optional<std::int64_t> query = {};  // lines(): those of this row alone, from 0
};

// All three: any dtype; colours for finite values on a scale that the legend names; masked cells, NaN and -inf hatched,
// each in its own way, inf outlined. A long title is broken into lines. Throw Error (shape) for a tensor that is empty
// or of another rank, labels or a mask that do not fit it; Error (argument) for values below 0 on the scales log and
// row, and for a query that is not there.

// (tq, tk) as cells, with labels; up to 12 × 12 with numbers, up to 32 × 32 with the exact value under the mouse.
std::string heatmap(const Tensor& weights, const Options& options = {});
// (h, tq, tk) or (l, h, tq, tk): small multiples on one scale, a row a layer.
std::string heads(const Tensor& weights, const Options& options = {});
// (tq, tk) or (h, tq, tk): lines from each query to its keys, as strong as the weight; a colour a head.
std::string lines(const Tensor& weights, const Options& options = {});

// ---- vectors ------------------------------------------------------------------------------

struct Points {
  std::string name = {};  // "inputs", "context"
  Tensor vectors = {};    // (n, d)
  std::vector<std::string> labels = {};
};

struct SpaceOptions {
  std::string title = {};
  bool arrows = true;                    // from the origin; else dots above the floor
  double azimuth = -60, elevation = 30;  // the eye's place, in degrees
  double width = 560, height = 480;
};

// Vectors of one d in 3-D: as they are for d = 3 (flat for d below), else by their principal components, whose shares
// of the variance the axes name. The origin stays the origin. The first set is solid, later ones are dashed or hollow.
// Throws Error (shape) for sets that are empty or differ in d, labels that do not fit.
std::string space(std::span<const Points> sets, const SpaceOptions& options = {});

// ---- every step of a forward pass ----------------------------------------------------------

struct StepsOptions {
  std::string title = {};
  std::vector<std::string> tokens = {};
  std::int64_t item = 0, layer = 0, head = 0;  // of a batch, of several layers and heads: which is shown, from 0
  Colours colours = Colours::viridis;
};

// The steps of a trace as a strip of small heatmaps, each with its name, shape and range, in the order of the data's
// way. Throws Error as report() does, and for an item, layer or head that is not there.
std::string steps(const Trace& trace, const StepsOptions& options = {});

// ---- any of these, of a trace ---------------------------------------------------------------

// A Choice says what is drawn of a recorded pass, and how.
struct Choice {
  // heatmap, heads, lines, space (words as points), arrows (as vectors) or steps (every step as a strip).
  // "": heads where there are several and none is chosen, else heatmap.
  std::string figure = {};
  std::string step = {};   // "": weights; of space and arrows, inputs, and contexts of as many numbers beside them
  std::string title = {};  // "": the layer and the head, counted from 1, where there are several
  std::vector<std::string> tokens = {}, key_tokens = {};  // one a query, one a key; no key_tokens: the queries'
  std::int64_t item = 0;                                  // of a batch, from 0
  std::optional<std::int64_t> layer = {}, head = {};      // from 0; none: all of them for heads, else the first
  Scale scale = Scale::automatic;
  Colours colours = Colours::viridis;
  std::optional<std::int64_t> query = {};  // lines: those of this row alone, from 0
};

// Draws as `attn plot` and attn.plot() do. Throws Error as report() does; (argument) for a figure, step, layer, head or
// item that is not there, and for a choice that the figure would not use; (shape) as the functions above, and for heads
// of several layers that differ in number.
std::string draw(const Trace& trace, const Choice& choice = {});

// ---- lines over steps: loss curves ------------------------------------------------------

struct Series {
  std::string name = {};
  std::vector<double> x = {}, y = {};  // equally many; what is not finite leaves a gap
};

struct Axes {
  std::string title = {};
  std::string x = {}, y = {};  // the axes' names
  bool log_y = false;          // values not above 0 leave a gap
  double width = 640, height = 400;
};

// One line a series, named above the plot; many points are thinned so that every peak stays.
// Throws Error for a series whose x and y differ in number, or a size below 160 × 120.
std::string line_chart(std::span<const Series> series, const Axes& axes);

// ---- in the terminal --------------------------------------------------------------------

enum class Characters { unicode, ascii };

enum class Depth { none, palette, full };  // of colour: characters only, 256 colours, 24 bits

struct TerminalOptions {
  std::size_t columns = 80;  // fewer than 20 are taken as 20, more than 4096 as 4096
  Depth depth = Depth::none;
  Characters characters = Characters::unicode;
};

// (tq, tk) as lines of text, at most `columns` wide, pooled where it has more cells; labels before the rows and, where
// they fit, above the columns; numbers in the cells where they fit; last the legend, and what was pooled. Throws Error
// as heatmap().
std::string terminal_heatmap(const Tensor& weights, const Options& options = {}, const TerminalOptions& terminal = {});

// "▂▁▄▆█": values from the lowest to the highest, averaged to at most `columns`; "?" where one is not finite.
std::string sparkline(std::span<const double> values, std::size_t columns = 80,
                      Characters characters = Characters::unicode);

// ---- a figure as a page, and as PNG -------------------------------------------------------

// One file of HTML for a browser: the figure, its title, and `text` below it as it is. It runs and fetches nothing.
std::string page(std::string_view svg, std::string_view text = {});

// Throws Error (argument), which says what to install, where librsvg is not there. It is loaded when it is first used.
void require_png();
// The bytes of a PNG file of an SVG, `dpi` pixels an inch. Throws as require_png(), and for more than 32767 pixels a
// side.
std::string png(std::string_view svg, double dpi = 192);

}  // namespace attn::figure
