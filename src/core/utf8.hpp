// UTF-8, one character at a time (RFC 3629: shortest forms only, no surrogates, up to U+10FFFF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attn {

struct Character {
  std::uint32_t code = 0;  // meaningless unless valid
  std::size_t length = 1;  // bytes; of what is no UTF-8, the bytes that one U+FFFD stands for
  bool valid = true;
  bool cut_off = false;  // not valid, but more bytes could make it so
};

// The character at the beginning of `text`, which is not empty.
inline Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead};
  const std::size_t length = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
  if (length == 1) return {0, 1, false};
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {0, i, false, true};
    std::uint8_t low = 0x80, high = 0xbf;  // the second byte excludes long forms, surrogates and what lies above
    if (i == 1 && lead == 0xe0) low = 0xa0;
    if (i == 1 && lead == 0xed) high = 0x9f;
    if (i == 1 && lead == 0xf0) low = 0x90;
    if (i == 1 && lead == 0xf4) high = 0x8f;
    if (byte(i) < low || byte(i) > high) return {0, i, false};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  return {code, length};
}

// Appends the character, which is none of the surrogates.
inline void append_utf8(std::string& text, std::uint32_t code) {
  const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes after the first
  constexpr std::uint32_t leads[] = {0, 0xc0, 0xe0, 0xf0};
  text.push_back(static_cast<char>(leads[more] | code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) text.push_back(static_cast<char>(0x80 | (code >> (6 * i) & 0x3f)));
}

}  // namespace attn
