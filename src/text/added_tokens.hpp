// Tokens that are found in a text before all else.
#pragma once

#include <array>
#include <cstddef>
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

class AddedTokens {
 public:
  // What is looked for, and what it stands for; the tokens have to outlive this.
  explicit AddedTokens(std::vector<std::pair<std::string, const AddedToken*>> wanted);

  // At every place the longest token that begins there, from the left. Parts do not overlap; empty ones are left out.
  std::vector<Part> split(std::string_view text) const;

 private:
  const std::pair<std::string, const AddedToken*>* longest_at(std::string_view text) const;

  std::vector<std::pair<std::string, const AddedToken*>> wanted_;  // sorted
  std::array<std::size_t, 257> first_{};  // those that begin with byte b: first_[b] to first_[b + 1]
};

}  // namespace attn::text
