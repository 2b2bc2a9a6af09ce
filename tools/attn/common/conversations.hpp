// Conversations of the command line as text, by a model's chat template.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "attn/tokenizer.hpp"

namespace attn::tool {

// Makes the text of what a user says, after the system's where there is one. Throws Error for a template that
// refuses it, or cannot be rendered.
std::string conversation(const Tokenizer& tokenizer, const std::optional<std::string>& system, const std::string& user);
// The same of a file of JSON, as ChatTemplate::format() takes it.
std::string conversation_in(const std::filesystem::path& file, const Tokenizer& tokenizer);

}  // namespace attn::tool
