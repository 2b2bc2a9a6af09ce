// What of a text a tokenizer has no token for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "attn/tokenizer.hpp"

namespace attn::tool {

// How often a text has each of some characters, the bytes of which are the keys.
using Characters = std::map<std::string, std::int64_t>;

void count_characters(std::string_view text, Characters& counts);

// One line of those that the tokenizer passes over, or takes for its unknown token; empty where there is none.
std::string lacking_text(const Characters& counts, const Tokenizer& tokenizer);

}  // namespace attn::tool
