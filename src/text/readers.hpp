// Descriptions of tokenizers from the files that hold them. All throw Error (data).
#pragma once

#include <filesystem>
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
// tokenizer_config.json with the tokens of the older special_tokens_map.json, which count as transformers counts them:
// before the config's own, but not at all where that lists the added tokens.
std::string with_special_tokens(std::string_view config, const io::Origin& origin, std::string_view map,
                                const io::Origin& map_origin);
// added_tokens.json, after the others: tokens that are there under the same ids. Throws for other ids.
void add_added_tokens(std::string_view json, const io::Origin& origin, Description& description);
// tokenizer_config.json adds the end of a text, and the chat template.
void add_tokenizer_config(std::string_view json, const io::Origin& origin, Description& description);

// A tokenizer.json, or a folder of it, or of vocab.json and merges.txt; with it what messages call it.
std::pair<Description, std::string> describe_files(const std::filesystem::path& path);

Description describe_gguf(const io::Gguf& file, const io::Origin& origin);

}  // namespace attn::text
