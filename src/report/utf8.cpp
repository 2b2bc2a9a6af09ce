#include "report/utf8.hpp"

namespace attn {

std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
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
