// "randn:4,8,32": tensors that are drawn, or filled, instead of read from a file.
#pragma once

#include <string>
#include <string_view>

#include "attn/random.hpp"
#include "attn/tensor.hpp"

namespace attn::tool {

// Whether the text begins as such a tensor does. A file of that name is written ./randn:4,8,32.
bool is_drawn(std::string_view text);
// Whether its numbers are drawn by a seed, as those of ones: are not.
bool is_random(std::string_view text);
// Throws Error (argument) for a text that is near to such a tensor's, such as randm:4, where no file has that name.
void require_drawn_or_there(const std::string& text, std::string_view who);
// rand:SIZES, randn:SIZES, ones:SIZES as float32; randint:LOW,HIGH:SIZES as int64, from LOW to HIGH - 1. `who` is the
// flag that it was given to. Throws Error (argument).
Tensor drawn(std::string_view text, std::string_view who, Generator& rng);

}  // namespace attn::tool
