#include "report/figure/text.hpp"

#include <algorithm>
#include <array>

#include "core/escape.hpp"
#include "core/utf8.hpp"
#include "report/utf8.hpp"

namespace attn::figure {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// The code point at `at` of well-formed text, and past it; of other bytes kReplacement.
char32_t next(std::string_view text, std::size_t& at) noexcept {
  const Character c = first_character(text.substr(at));
  if (!c.valid) return ++at, kReplacement;
  at += c.length;
  return c.code;
}

// The first and the last of each of some blocks of characters.
template <std::size_t N>
bool in(const std::array<char32_t, N>& ends, char32_t point) noexcept {
  bool found = false;
  for (std::size_t i = 0; i < N; i += 2) found = found || (point >= ends[i] && point <= ends[i + 1]);
  return found;
}

// Blocks of Unicode 15 whose characters are drawn on the one before, or not at all.
constexpr std::array<char32_t, 24> kNoWidth{0x0300, 0x036f, 0x0483, 0x0489, 0x0591, 0x05bd, 0x064b, 0x065f,
                                            0x0900, 0x0902, 0x093c, 0x093c, 0x1ab0, 0x1aff, 0x1dc0, 0x1dff,
                                            0x200b, 0x200d, 0x20d0, 0x20ff, 0xfe00, 0xfe0f, 0xfe20, 0xfe2f};
// East_Asian_Width W and F, and emoji.
constexpr std::array<char32_t, 20> kWide{0x1100, 0x115f, 0x2e80,  0x303e,  0x3041,  0xa4cf, 0xa960,
                                         0xa97c, 0xac00, 0xd7a3,  0xf900,  0xfaff,  0xfe30, 0xfe6f,
                                         0xff00, 0xff60, 0x1f000, 0x1faff, 0x20000, 0x3fffd};
constexpr char32_t kJoiner = 0x200d;

std::size_t columns_of(char32_t point) noexcept { return in(kNoWidth, point) ? 0 : in(kWide, point) ? 2 : 1; }

char32_t shown(char32_t point) noexcept {
  if (point < 0x20) return 0x2400 + point;
  if (point == 0x7f) return 0x2421;
  const bool unwanted =  // the others are no characters, and no XML
      drives_terminal(point) || (point & 0xfffe) == 0xfffe || (point >= 0xfdd0 && point < 0xfdf0);
  return unwanted ? kReplacement : point;
}

}  // namespace

std::string clean(std::string_view text) {
  const std::string valid = valid_utf8(text);
  std::string result;
  for (std::size_t at = 0; at < valid.size();) append_utf8(result, shown(next(valid, at)));
  return result;
}

std::size_t columns_of(std::string_view text) noexcept {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) columns += columns_of(next(text, at));
  return columns;
}

std::string shortened(std::string_view text, std::size_t columns) {
  // Where a cut leaves room for the "…": before a character that starts a new one.
  std::size_t width = 0, cut = 0;
  bool joined = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next(text, at);
    if (width + 1 <= columns && columns_of(point) > 0 && !joined) cut = begin;
    width += columns_of(point);
    joined = point == kJoiner;
    if (width > columns) return columns == 0 ? "" : std::string(text.substr(0, cut)) + "…";
  }
  return std::string(text);
}

std::string label(std::string_view token, std::size_t columns) {
  if (token.empty()) return "∅";
  // A label needs few of a long token's bytes: the widest character has four, and marks may follow it.
  const std::size_t enough = 64 * (columns + 1);
  std::string text = clean(token.substr(0, enough));
  if (token.size() > enough) text.append("…");
  constexpr std::string_view blank = "␣";
  const std::size_t lead = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t tail = lead == text.size() ? 0 : text.size() - 1 - text.find_last_not_of(' ');
  std::string result;
  for (std::size_t i = 0; i < lead; ++i) result.append(blank);
  result.append(text, lead, text.size() - lead - tail);
  for (std::size_t i = 0; i < tail; ++i) result.append(blank);
  return shortened(result, columns);
}

std::vector<std::string> broken(std::string text, std::size_t columns) {
  std::vector<std::string> lines;
  while (columns_of(text) > columns) {
    std::string line = shortened(text, columns);
    line.erase(line.rfind("…"));  // a word goes to the next line whole
    const std::size_t blank = line.find_last_of(' ');
    if (blank != std::string::npos && blank > 0) line.erase(blank);
    text.erase(0, line.size());
    text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
    lines.push_back(std::move(line));
  }
  lines.push_back(std::move(text));
  return lines;
}

double text_width(std::string_view text, double font_size) noexcept {
  constexpr double column = 0.6;  // of the font size: DejaVu Sans, which is a wide one
  return column * font_size * static_cast<double>(columns_of(text));
}

}  // namespace attn::figure
