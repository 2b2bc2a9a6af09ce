// A GGUF file as if it were a Hugging Face folder: its config.json, and its tensors in those names and layouts.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "attn/gguf.hpp"
#include "attn/pretrained.hpp"

namespace attn {

// Returns what a list of pairs has for a part of a name; empty where it has nothing.
template <class Names>
std::string_view renamed(std::string_view part, const Names& names) {
  const auto at = std::ranges::find_if(names, [&](const auto& pair) { return pair.first == part; });
  return at == names.end() ? std::string_view() : at->second;
}

// `source` names the file in messages.
PretrainedFiles open_gguf_model(const std::shared_ptr<const io::Gguf>& file, const std::string& source);

}  // namespace attn
