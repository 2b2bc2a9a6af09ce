// Whether ranks have the same weights, told by a few characters.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attn/module.hpp"

namespace attn::tool {

// 16 hexadecimal digits, which depend on names, shapes, dtypes and every bit of the tensors, and on a text.
std::string fingerprint(std::span<Parameter* const> parameters, std::string_view text = {});
std::string fingerprint(const StateDict& tensors);

}  // namespace attn::tool
