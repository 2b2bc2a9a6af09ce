// How a text is cut, by the name that a GGUF file has for it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/pieces.hpp"

namespace attn::text {

struct PreTokenizer {
  std::vector<Splitter> splitters;
  bool nfc = false;            // the text is brought into that form before
  bool ignore_merges = false;  // a piece that is a token is that token
  bool begins = false;         // a text begins with the beginning's mark, where the file does not say
};

// None for a name that is not known.
std::optional<PreTokenizer> pre_tokenizer_named(std::string_view name);

}  // namespace attn::text
