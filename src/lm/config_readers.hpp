// The readers of a config.json whose keys may come of another file, which has names of its own for them.
#pragma once

#include <string_view>

#include "attn/encoder.hpp"
#include "attn/pretrained.hpp"
#include "io/gguf_metadata.hpp"

namespace attn {

LanguageModelConfig language_model_config_of(std::string_view text, const io::Origin& origin);
EncoderConfig encoder_config_of(std::string_view text, const io::Origin& origin);

// Returns the names that GGUF files have for the keys of a config.json.
io::KeyNames gguf_names(const io::GgufMetadata& metadata);

}  // namespace attn
