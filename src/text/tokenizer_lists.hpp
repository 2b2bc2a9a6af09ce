// The long lists in the JSON of tokenizers' files.
#pragma once

#include "io/json_object.hpp"
#include "text/description.hpp"

namespace attn::text {

inline constexpr std::size_t kLongestText = 1024;  // of an added token, or of what a normalizer puts in

// The JSON of tokenizer.json or tokenizer_config.json without its vocabulary, merges and added tokens, which go into
// the description. Throws Error (data).
nlohmann::json parse_tokenizer(std::string_view text, const io::Origin& origin, Description& description);

// {"id": 0, "content": "<s>", "special": true, …}
AddedToken added_token(const io::JsonObject& json);

}  // namespace attn::text
