// The sentence that all notebooks use: six words, each an embedding of three numbers.
#pragma once

#include <string>
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

}  // namespace attn::tool
