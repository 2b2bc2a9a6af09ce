// Arithmetic written out: "0.4306·0.4433 + (-1.4551)·1.1419 = -1.4707".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace attn::tool {

// A number within arithmetic: "0.5", "(-0.5)".
std::string operand_text(double value);

// "prefix = a0·b0 + a1·b1 [+ bias] = total", cut to 80 columns by leaving out middle terms ("…"), never the
// first, the last or the total. `suffix` is added where it fits.
std::string dot_line(std::string_view prefix, std::span<const double> a, std::span<const double> b,
                     std::optional<double> bias, double total, std::string_view suffix = {});

}  // namespace attn::tool
