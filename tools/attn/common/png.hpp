// SVG to PNG, by librsvg where it is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attn::tool {

// Throws Error (argument), which says what to install, when librsvg is not there.
void require_png();
// The bytes of a PNG file. Throws as require_png(), and for more than 32767 pixels a side.
std::string png(std::string_view svg, double dpi);

}  // namespace attn::tool
