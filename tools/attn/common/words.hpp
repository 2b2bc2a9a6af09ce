// The sentence that all notebooks use: six words, each an embedding of three numbers; and the words of a text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attn/tensor.hpp"

namespace attn::tool {

inline Tensor six_word_embeddings() {
  return Tensor::of({{0.43f, 0.15f, 0.89f},
                     {0.55f, 0.87f, 0.66f},
                     {0.57f, 0.85f, 0.64f},
                     {0.22f, 0.58f, 0.33f},
                     {0.77f, 0.25f, 0.10f},
                     {0.05f, 0.80f, 0.55f}});
}

inline std::vector<std::string> six_words() { return {"Your", "journey", "starts", "with", "one", "step"}; }

// Text behind the byte order mark that some editors write first.
std::string_view without_mark(std::string_view text);
// Those of a text, behind such a mark. Throws Error (argument) for UTF-16.
std::vector<std::string> words_in(std::string_view text, const char* flag);

}  // namespace attn::tool
