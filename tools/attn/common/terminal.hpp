// Everything that reaches the terminal: writing that notices failure, colour only where it is welcome.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/figure.hpp"
#include "attn/tensor.hpp"

namespace attn::tool {

inline constexpr std::size_t kColumns = 80;
inline constexpr std::size_t kLongestLabel = 20;  // of a row: what is longer is cut

// Throws Error (file) when the text could not be written, io::ClosedPipe when nobody reads it (attn demo | head -1).
void write_stdout(std::string_view text);
// Best effort: there is nowhere to complain.
void write_stderr(std::string_view text) noexcept;

// Escape codes where standard output is a terminal that takes them, empty strings elsewhere.
class Style {
 public:
  explicit Style(figure::Depth depth) : depth_(depth) {}
  // By isatty, NO_COLOR (https://no-color.org), TERM and COLORTERM.
  static Style of_stdout();
  // As `when` says: auto (as above), never, always (what TERM and COLORTERM tell), 256, 24bit.
  static Style of_stdout(std::string_view when);

  figure::Depth depth() const noexcept { return depth_; }
  bool coloured() const noexcept { return depth_ != figure::Depth::none; }
  std::string heading(std::string_view text) const;
  std::string strong(std::string_view text) const;
  std::string faint(std::string_view text) const;

 private:
  std::string wrap(std::string_view code, std::string_view text) const;

  figure::Depth depth_;
};

// Asks the terminal that the descriptor is; kColumns where it is none.
std::size_t terminal_width(int descriptor) noexcept;

// The columns of text on standard output: those of a terminal narrower than kColumns, else kColumns.
std::size_t text_columns() noexcept;

// Lines that are wider than the terminal that the descriptor is, broken between words, but not behind an operator of
// arithmetic; the same text elsewhere. What follows a break is indented as its line, and `hanging` columns more.
std::string fitted(std::string_view text, int descriptor, std::size_t hanging = 0);

// Columns that UTF-8 text takes: wide characters take two, and marks none.
std::size_t width_of(std::string_view text) noexcept;
std::string padded(std::string_view text, std::size_t width);

// Weights (queries, keys) as coloured blocks, beside numbers that have just been printed; empty without colour. `keep`
// is false where a key is masked, and undefined where none is.
std::string heatmap(const Tensor& weights, const std::vector<std::string>& tokens, const Style& style,
                    const Tensor& keep = {});

// As to_string(tensor), with the label of each row of the last but one dimension: "…],  # Your". No labels: as is. Rows
// are broken earlier where the labels would not fit beside them.
std::string labelled(const Tensor& tensor, std::span<const std::string> labels);

// "[0.4306, 1.4551]": at most five numbers, four decimals each.
std::string vector_text(std::span<const double> values);
// Four decimals as in the book, scientific where that would show nothing or too much.
std::string number_text(double value);

// A rank-1 tensor's elements.
std::vector<double> values_of(const Tensor& row);

}  // namespace attn::tool
