#include "core/escape.hpp"

#include <array>
#include <cstdio>

#include "core/utf8.hpp"

namespace attn {

bool drives_terminal(std::uint32_t code) noexcept {
  const auto in = [code](std::uint32_t first, std::uint32_t last) { return code >= first && code <= last; };
  return in(0, 0x1f) || in(0x7f, 0x9f) || code == 0x61c || in(0x200e, 0x200f) || in(0x2028, 0x202e) ||
         in(0x2066, 0x2069);
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  const auto append = [&](const char* format, unsigned code) {
    std::array<char, 16> digits{};
    std::snprintf(digits.data(), digits.size(), format, code);
    result.append(digits.data());
  };
  while (!text.empty()) {
    const Character c = first_character(text);
    const std::string_view bytes = text.substr(0, c.valid ? c.length : 1);
    if (!c.valid) {
      append("\\x%02x", static_cast<unsigned char>(bytes[0]));
    } else if (drives_terminal(c.code) && kept.find(bytes) == std::string_view::npos) {
      append("\\u%04x", c.code);
    } else {
      result.append(bytes);
    }
    text.remove_prefix(bytes.size());
  }
  return result;
}

}  // namespace attn
