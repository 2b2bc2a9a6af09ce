// Unicode's normal form C: the same text is the same bytes, however its accents were typed.
#pragma once

#include <string>
#include <string_view>

namespace attn::text {

// A byte that is no UTF-8 stays as it is, and nothing is joined across it.
std::string nfc(std::string_view text);
std::string nfd(std::string_view text);  // form D: characters taken apart and marks sorted, and no more

}  // namespace attn::text
