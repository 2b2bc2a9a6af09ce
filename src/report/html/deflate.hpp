// Bytes made smaller, as browsers open them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attn::report_page {

// The raw DEFLATE stream (RFC 1951) of the bytes; none where the library was built without zlib.
std::optional<std::string> deflated(std::string_view bytes);

}  // namespace attn::report_page
