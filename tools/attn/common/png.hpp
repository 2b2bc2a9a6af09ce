// SVG to PNG, by librsvg.
#pragma once

#include <string>
#include <string_view>

namespace attn::tool {

// Was the command built with librsvg?
bool has_png() noexcept;
// The bytes of a PNG file, 96 units of the SVG an inch. Throws Error (argument) without librsvg or past 32767 pixels.
std::string png(std::string_view svg, double dpi);

}  // namespace attn::tool
