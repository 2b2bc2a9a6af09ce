// Texts as Python's: characters are code points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.hpp"

namespace attn::jinja {

std::vector<std::string_view> characters(std::string_view text);
std::size_t length(std::string_view text);
bool is_space(std::string_view character);

enum Side { kLeft = 1, kRight = 2, kBoth = 3 };
// Without what `chars` holds at the sides; white space where that is null.
std::string_view stripped(std::string_view text, int sides, const std::string* chars = nullptr);
// unsupported() for letters of rare scripts.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
// Words begin after what is no letter, or in the filter after a blank, a hyphen or a bracket.
std::string titled(std::string_view text, bool as_python);
// -1 replaces all.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);
std::vector<std::string_view> lines_of(std::string_view text);  // as str.splitlines()
std::string escaped_html(std::string_view text);
// text % arguments, of %s and %d, and text.format(arguments), of {}, {name} and {:d}
std::string percent(std::string_view text, const Value& given);
std::string format(std::string_view text, const Arguments& given);

}  // namespace attn::jinja
