// A template as tokens: texts between tags, and what the tags hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.hpp"

namespace attn::jinja {

struct Token {
  enum class Kind {
    data,
    name,
    string,
    integer,
    number,
    sign,
    begin_print,
    end_print,
    begin_block,
    end_block,
    end
  } kind;
  std::string text;  // of a sign the sign itself: "{", "//", "=="
  std::size_t line;
};

// With trim_blocks and lstrip_blocks, as transformers reads templates. Throws Error.
std::vector<Token> tokens_of(std::string_view source);

[[noreturn]] void failed_at(std::size_t line, const std::string& why);

// Counts how deep something goes into itself.
struct Deeper {
  Deeper(int& counted, int most, const char* what) : depth(counted) {
    if (depth >= most) failed(std::string(what) + " in one another, more than " + std::to_string(most) + " deep");
    ++depth;
  }
  ~Deeper() { --depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  int& depth;
};

}  // namespace attn::jinja
