// Descriptions of tokenizers from the files that hold them. All throw Error (data).
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "attn/gguf.hpp"
#include "io/bytes.hpp"
#include "text/description.hpp"

namespace attn::text {

// GPT-2's vocab.json and merges.txt.
Description describe_gpt2(std::string_view vocab_json, std::string_view merges_txt);

// "a b" as its two tokens.
std::pair<std::string, std::string> merge_of(std::string_view line, const io::Origin& origin);

Description describe_tokenizer_json(std::string_view json, const io::Origin& origin);
// What tokenizer_config.json adds: the end of a text, and the chat template.
void add_tokenizer_config(std::string_view json, const io::Origin& origin, Description& description);

Description describe_gguf(const io::Gguf& file, const io::Origin& origin);

}  // namespace attn::text
