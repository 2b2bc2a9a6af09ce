// Which tokenizer a model's text goes through.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "attn/gpt.hpp"
#include "attn/tokenizer.hpp"

namespace attn::tool {

// The vocab.json and merges.txt in `folder`; without a folder those beside the model, else bytes. Throws Error for a
// vocabulary that is not the model's, and for files that are no tokenizer.
std::unique_ptr<Tokenizer> tokenizer_for(const std::filesystem::path& model, const GPTConfig& config,
                                         const std::string& folder);

}  // namespace attn::tool
