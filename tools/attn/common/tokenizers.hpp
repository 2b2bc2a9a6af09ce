// Which tokenizer a model's text goes through.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "attn/tokenizer.hpp"

namespace attn::tool {

// The tokenizer that BPETokenizer::load() finds in the folder `given`, or without one in the model's folder or GGUF
// file; where there is none, bytes for a model of 256 tokens. The model may have more tokens, as tables of embeddings
// are padded. Throws Error for one with less, and for files that are no tokenizer.
std::unique_ptr<Tokenizer> tokenizer_for(const std::filesystem::path& model, std::int64_t model_tokens,
                                         const std::string& given);

// Makes the text of what a user says, after the system's where that is not empty, by the model's chat template. Throws
// Error for a template that refuses it, or cannot be rendered.
std::string conversation(const Tokenizer& tokenizer, const std::string& system, const std::string& user);
// The same of a file of JSON, as ChatTemplate::format() takes it.
std::string conversation_in(const std::filesystem::path& file, const Tokenizer& tokenizer);

}  // namespace attn::tool
