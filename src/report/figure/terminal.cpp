// A matrix in a terminal, in colours or in characters.
#include <algorithm>
#include <array>
#include <cmath>

#include "report/figure/cells.hpp"
#include "report/figure/text.hpp"
#include "report/figure/validate.hpp"

namespace attn::figure {
namespace {

constexpr std::size_t kTerminalLabel = 14, kWidestCell = 6, kNumberCell = 6, kFewestColumns = 20, kWidestText = 4096;
constexpr std::string_view kReset = "\x1b[0m";

// The nearest colour of xterm's 6 × 6 × 6 cube, whose levels are 0, 95, 135, 175, 215, 255.
int palette_index(Rgb colour) {
  const auto level = [](int channel) { return channel < 48 ? 0 : channel < 115 ? 1 : (channel - 35) / 40; };
  return 16 + 36 * level(colour.r) + 6 * level(colour.g) + level(colour.b);
}

std::string paint(Rgb colour, Depth depth) {
  if (depth == Depth::palette) return "\x1b[48;5;" + std::to_string(palette_index(colour)) + "m";
  std::string code = "\x1b[48;2;";
  for (const int channel : {colour.r, colour.g, colour.b}) code.append(std::to_string(channel)).append(";");
  code.back() = 'm';
  return code;
}

std::string padded(const std::string& text, std::size_t width, bool right = false) {
  const std::size_t blank = width - std::min(width, columns_of(text));
  return right ? std::string(blank, ' ') + text : text + std::string(blank, ' ');
}

// In the order of Kind; a zero is nothing, on a scale whose lowest is something.
std::string mark_of(Kind kind, bool ascii) {
  constexpr const char *plain[] = {" ", " ", ".", "?", "-", "+"}, *marks[] = {" ", " ", "·", "?", "−", "+"};
  return (ascii ? plain : marks)[static_cast<std::size_t>(kind)];
}

// A part of the legend that stays on one line: after how many blanks it stands, and the columns that it takes.
struct Part {
  std::string text;
  std::size_t gap, width;
};

// Parts one after the other, on as many lines as they need.
std::string lines_of(const std::vector<Part>& parts, std::size_t indent, std::size_t columns) {
  std::string text;
  std::size_t column = 0;
  for (const Part& part : parts) {
    if (column == 0 || column + part.gap + part.width > columns) {
      const std::size_t blank = std::min(indent, columns - std::min(columns, part.width));
      text.append(column == 0 ? "" : "\n").append(blank, ' ');
      column = blank;
    } else {
      text.append(part.gap, ' ');
      column += part.gap;
    }
    text.append(part.text);
    column += part.width;
  }
  return text.empty() ? text : text + "\n";
}

std::vector<Part> words_of(const std::string& text) {
  std::vector<Part> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    words.push_back({word, 1, columns_of(word)});
    at = end + 1;
  }
  return words;
}

class Drawing {
 public:
  Drawing(const Matrix& m, const ValueScale& scale, const TerminalOptions& options)
      : m_(m), scale_(scale), options_(options), ascii_(options.characters == Characters::ascii) {
    for (std::int64_t i = 0; !m.pooled() && i < m.rows; ++i) {
      for (std::int64_t j = 0; j < m.columns; ++j) {
        if (is_value(i, j)) longest_ = std::max(longest_, columns_of(short_number(m.at(i, j), 2)));
      }
    }
  }

  // How wide a cell is that keeps a blank between any number and the next.
  std::size_t number_width() const { return m_.pooled() ? 0 : std::max(longest_ + 1, kNumberCell); }
  // Numbers are written where every one of them fits; else every cell is a block.
  bool has_numbers(std::size_t width) const { return !m_.pooled() && width >= number_width(); }

  // A number on its colour, or a block whose darkness or colour is the value.
  std::string cell(std::int64_t i, std::int64_t j, std::size_t width) const {
    const double value = m_.at(i, j);
    if (!is_value(i, j)) return centred(mark_of(scale_.kind(value, m_.keeps(i, j)), ascii_), width);
    const bool number = has_numbers(width);
    if (options_.depth == Depth::none) {
      return number ? centred(short_number(value, 2), width) : shaded(scale_.share(m_, i, j), width);
    }
    const Rgb colour = scale_.colour(m_, i, j);
    if (!number) return paint(colour, options_.depth) + std::string(width, ' ') + std::string(kReset);
    const std::string ink = std::string_view(ink_on(colour)) == "#000000" ? "\x1b[30m" : "\x1b[97m";
    return paint(colour, options_.depth) + ink + centred(short_number(value, 2), width) + std::string(kReset);
  }

  // The scale of the blocks or colours, where there are any, and what the marks mean.
  std::string legend(std::size_t width, std::size_t indent) const {
    const std::size_t columns = std::clamp<std::size_t>(options_.columns, kFewestColumns, kWidestText);
    std::vector<Part> parts;
    if (scale_.range().any() && !(has_numbers(width) && options_.depth == Depth::none)) {
      parts.push_back(bar(columns - indent));
      if (scale_.log()) parts.push_back({"(log)", 1, 5});
      if (scale_.by_row()) parts.push_back({"(by row)", 1, 8});
    }
    for (const Kind kind : kinds_in(m_, scale_)) {
      if (kind == Kind::value) continue;
      const std::string text = (kind == Kind::zero ? "blank" : mark_of(kind, ascii_)) + " " + name_of(kind);
      parts.push_back({text, 3, columns_of(text)});
    }
    return lines_of(parts, indent, columns);
  }

 private:
  bool is_value(std::int64_t i, std::int64_t j) const {
    return scale_.kind(m_.at(i, j), m_.keeps(i, j)) == Kind::value;
  }
  // From the lowest to the highest value, shorter where there is little room.
  Part bar(std::size_t room) const {
    const LegendEnds ends = legend_ends(scale_);
    const std::size_t texts = columns_of(ends.low_text) + columns_of(ends.high_text) + 2;
    const std::size_t steps = std::clamp<std::size_t>(room - std::min(room, texts), 4, 16);
    std::string text = ends.low_text + " ";
    for (std::size_t s = 0; s < steps; ++s) {
      const double share = (static_cast<double>(s) + 0.5) / static_cast<double>(steps);
      text.append(options_.depth == Depth::none
                      ? shaded(share, 1)
                      : paint(scale_.shade_at(share), options_.depth) + " " + std::string(kReset));
    }
    return {text + " " + ends.high_text, 0, texts + steps};
  }
  static std::string centred(const std::string& text, std::size_t width) {
    const std::size_t blank = width - std::min(width, columns_of(text));
    return std::string(blank / 2, ' ') + text + std::string(blank - blank / 2, ' ');
  }
  std::string shaded(double share, std::size_t width) const {
    constexpr std::array<std::string_view, 5> blocks{" ", "░", "▒", "▓", "█"};
    constexpr std::string_view ramp = " .:-=+*#%@";
    if (scale_.by_sign()) return shaded_by_sign(2 * share - 1, width);
    const std::size_t first = scale_.log(), count = (ascii_ ? ramp.size() : blocks.size()) - first;
    const auto step = static_cast<std::size_t>(std::max(0.0, share) * static_cast<double>(count));
    const std::size_t level = first + std::min(count - 1, step);
    std::string text;
    for (std::size_t i = 0; i < width; ++i) text.append(ascii_ ? ramp.substr(level, 1) : blocks[level]);
    return text;
  }
  // Blocks above 0 and lines below it, the denser the further from it.
  std::string shaded_by_sign(double value, std::size_t width) const {
    constexpr std::array<std::string_view, 5> above{" ", "░", "▒", "▓", "█"}, below{" ", "-", "~", "=", "≡"};
    constexpr std::string_view above_ascii = " .:*@", below_ascii = " -~=%";
    const auto level = std::min<std::size_t>(4, static_cast<std::size_t>(std::abs(value) * 5));
    std::string text;
    for (std::size_t i = 0; i < width; ++i) {
      text.append(ascii_ ? (value < 0 ? below_ascii : above_ascii).substr(level, 1)
                         : (value < 0 ? below : above)[level]);
    }
    return text;
  }

  const Matrix& m_;
  const ValueScale& scale_;
  const TerminalOptions& options_;
  bool ascii_;
  std::size_t longest_ = 0;  // of the numbers, in columns
};

// The columns' labels: written above where they fit, else numbers below every few cells are enough.
std::string header(const std::vector<std::string>& columns, std::size_t cell, std::size_t indent) {
  std::size_t widest = 0;
  for (const std::string& c : columns) widest = std::max(widest, columns_of(c));
  if (cell < 3) return {};
  std::string line(indent, ' ');
  for (const std::string& c : columns) line.append(padded(shortened(c, cell - 1), cell));
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string terminal_heatmap(const Tensor& weights, const Options& options, const TerminalOptions& terminal) {
  validate("terminal_heatmap", weights, 2, 2, "a matrix (queries, keys) that is not empty", options);
  const std::size_t columns = std::clamp<std::size_t>(terminal.columns, kFewestColumns, kWidestText);
  std::size_t label_width = 0;
  for (const std::string& l : labels_of(options.tokens, weights.size(0), 1, kTerminalLabel)) {
    label_width = std::max(label_width, columns_of(l));
  }
  label_width = std::min(label_width, columns / 3);
  const std::size_t indent = label_width + 2, room = columns - indent;
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(room, 2));
  const Matrix m = matrix_of(weights, options.keep, std::min(options.max_cells, most));
  const auto heads =
      labels_of(key_tokens_of(options, weights.size(0), weights.size(1)), m.columns, m.block_columns, kTerminalLabel);
  const ValueScale scale(m.range, chosen_scale(options.scale, m.range, weights.size(0), weights.size(1)),
                         options.colours);
  const Drawing drawing(m, scale, terminal);
  std::size_t widest = std::max(kWidestCell, drawing.number_width());  // or as wide as the longest label needs
  for (const std::string& l : heads) widest = std::max(widest, columns_of(l) + 1);
  const std::size_t cell = std::clamp<std::size_t>(room / static_cast<std::size_t>(m.columns), 1, widest);
  const auto rows = labels_of(options.tokens, m.rows, m.block_rows, label_width);

  std::string text = header(heads, cell, indent);
  for (std::int64_t i = 0; i < m.rows; ++i) {
    text.append(padded(rows[static_cast<std::size_t>(i)], label_width)).append("  ");
    for (std::int64_t j = 0; j < m.columns; ++j) text.append(drawing.cell(i, j, cell));
    while (text.back() == ' ') text.pop_back();
    text.append("\n");
  }
  text.append(drawing.legend(cell, indent));
  if (m.pooled()) text.append(lines_of(words_of(pooling_note(m)), 0, columns));
  return text;
}

}  // namespace attn::figure
