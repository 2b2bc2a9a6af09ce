// Tokens that are found in a text before all else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/description.hpp"

namespace attn::text {

// A part of a text: a token, or what lies between.
struct Part {
  std::string_view text;
  const AddedToken* token = nullptr;
};

// The method of Aho and Corasick (1975), from the end of a text to its beginning: a token that ends there is one that
// begins there when it is read forward. The time is that of the text, however many tokens there are.
class AddedTokens {
 public:
  using Wanted = std::pair<std::string, const AddedToken*>;

  // Each text that is looked for has the token that it stands for; the tokens have to outlive this.
  explicit AddedTokens(const std::vector<Wanted>& wanted);

  // At every place the longest token that begins there, from the left, as the tokenizers package finds them.
  std::vector<Part> split(std::string_view text) const;

 private:
  // The end of some tokens. Those that are one byte longer lie together.
  struct Node {
    std::uint32_t first = 0, end = 0;   // of the nodes that are one byte longer
    std::uint32_t shorter = 0;          // the node of the longest beginning that is another node, or the root
    const AddedToken* token = nullptr;  // the longest token that this is the end of, read backward
    std::uint32_t token_size = 0;
    std::uint8_t byte = 0;
  };

  std::uint32_t longer(std::uint32_t node, std::uint8_t byte) const;
  std::uint32_t after(std::uint32_t node, std::uint8_t byte) const;

  std::vector<Node> nodes_;  // the root, then by length
  std::array<std::uint32_t, 256> of_root_{};
};

}  // namespace attn::text
