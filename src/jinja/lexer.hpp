// A template as tokens: texts between tags, and what the tags hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attn::jinja {

struct Token {
  enum class Kind { data, name, string, integer, number, sign, end } kind;
  std::string text;  // of a sign the sign itself: "{%", "//", "=="
  std::size_t line;
};

// With trim_blocks and lstrip_blocks, as transformers reads templates. Throws Error.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace attn::jinja
