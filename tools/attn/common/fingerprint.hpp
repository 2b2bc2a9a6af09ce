// Whether ranks have the same weights, told by a few characters.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attn/module.hpp"

namespace attn::tool {

// It depends on names, shapes, dtypes and every bit of the parameters, and on a text: 16 hexadecimal digits.
std::string fingerprint(std::span<Parameter* const> parameters, std::string_view text = {});

}  // namespace attn::tool
