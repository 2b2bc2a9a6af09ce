// Bytes that are meant as text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attn {

// Bytes of the well-formed UTF-8 sequence at the front (Unicode 15, table 3-7), 0 when there is none.
std::size_t utf8_length(std::string_view text) noexcept;
// Well-formed: a byte that is not UTF-8 is written as "\xC3", as tokens that are parts of a character have them.
std::string valid_utf8(std::string_view text);

}  // namespace attn
