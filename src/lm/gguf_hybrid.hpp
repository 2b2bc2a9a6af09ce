// GGUF files of models whose layers are gated delta rules and softmax attention, as llama.cpp lays them out.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "attn/gguf.hpp"
#include "attn/pretrained.hpp"
#include "io/gguf_metadata.hpp"
#include "io/json_object.hpp"

namespace attn {

// Qwen3.5's sizes of recurrent layers, and what turns, into a config.json of the text part.
void add_qwen35(io::JsonObject::Json& config, const io::GgufMetadata& metadata);
// How many layers at a file's end guess tokens ahead, which are not read.
std::int64_t layers_ahead(const io::GgufMetadata& metadata);
// "ssm_out" → "linear_attn.out_proj"; empty for what is not of a recurrent layer.
std::string_view recurrent_name(std::string_view part);
// A tensor of a recurrent layer by its name in Hugging Face's files, as these have it.
StoredTensor stored_recurrent(const std::shared_ptr<const io::Gguf>& file, const io::GgufTensor& tensor,
                              const std::string& name, const GatedDeltaConfig& sizes, const std::string& source);

}  // namespace attn
