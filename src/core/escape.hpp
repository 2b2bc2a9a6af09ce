// Text that somebody else has written (names, paths, words from files), made safe to show.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attn {

// Whether a terminal obeys this character instead of showing it: the control characters below U+0020 and from U+007F to
// U+009F, what breaks a line, and marks that turn the direction of writing (U+202E), so that a name reads as another.
bool drives_terminal(std::uint32_t code) noexcept;

// Such characters as "\u202e", a byte that is no UTF-8 as "\xff"; all else, and the characters of `kept`, as they are.
// Safe text stays as it is, so that twice is no more than once.
std::string escaped(std::string_view text, std::string_view kept = {});

}  // namespace attn
