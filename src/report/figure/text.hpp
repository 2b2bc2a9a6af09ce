// Tokens and titles as they can be shown: valid UTF-8, of bounded width, nothing that drives a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attn::figure {

// Returns what XML and terminals take: bytes that are not UTF-8 become "\xC3", control characters their pictures
// (U+2400 and on), marks that turn the direction of writing U+FFFD.
std::string clean(std::string_view text);

// Columns in a terminal: wide characters (East Asian, emoji) take two, combining marks none. Cleaned text only.
std::size_t columns_of(std::string_view text) noexcept;
// Cut to `columns`, the last of them "…", between characters that belong together.
std::string shortened(std::string_view text, std::size_t columns);
// A token as a label: clean, its outer blanks visible ("␣"), empty as "∅", at most `columns` wide.
std::string label(std::string_view token, std::size_t columns);

// Lines of at most `columns` each, broken at blanks; a longer word is broken too. Cleaned text only.
std::vector<std::string> broken(std::string text, std::size_t columns);

// Estimates the width of one line of text at a font size, in points, for a common sans-serif, a little wide.
double text_width(std::string_view text, double font_size) noexcept;

}  // namespace attn::figure
