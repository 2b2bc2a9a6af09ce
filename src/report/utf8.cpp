#include "report/utf8.hpp"

#include "core/utf8.hpp"

namespace attn {

std::size_t utf8_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const Character c = first_character(text);
  return c.valid ? c.length : 0;
}

std::string valid_utf8(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    out.append(text.substr(0, length));
    if (length == 0) {
      const auto byte = static_cast<unsigned char>(text.front());
      out.append("\\x").append({digits[byte >> 4], digits[byte & 15]});
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace attn
