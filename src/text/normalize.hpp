// The steps before byte-pair encoding: a text is brought into a normal form, and cut into pieces.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "text/description.hpp"

namespace attn::text {

std::string normalized(std::string_view text, std::span<const Normalizer> steps);

std::string replaced_all(std::string_view text, std::string_view from, std::string_view to);

// Hands the pieces on, in order. `at_start` says that the text is the beginning of a whole.
void split(std::string_view text, bool at_start, std::span<const Splitter> steps,
           const std::function<void(std::string_view)>& take);

}  // namespace attn::text
