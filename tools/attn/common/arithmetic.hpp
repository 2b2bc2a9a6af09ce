// Arithmetic written out: "0.4306·0.4433 + (-1.4551)·1.1419 = -1.4707".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace attn::tool {

// A number within arithmetic: "0.5", "(-0.5)".
std::string operand_text(double value);

// "prefix = a0·b0 + a1·b1 [+ bias] = total". Of more than four products, or where they take more than 80 columns, the
// largest are written, the largest first, and the others as their sum: "0.5·0.9 + 0.3·0.8 + 0.1234 (14 more) = 0.8134".
// `suffix` is added where it fits.
std::string dot_line(std::string_view prefix, std::span<const double> a, std::span<const double> b,
                     std::optional<double> bias, double total, std::string_view suffix = {});

}  // namespace attn::tool
