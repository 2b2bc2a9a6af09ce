// GGUF files of models whose layers are gated delta rules and softmax attention, as llama.cpp lays them out.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "attn/gguf.hpp"
#include "attn/pretrained.hpp"
#include "io/gguf_metadata.hpp"
#include "io/json_object.hpp"

namespace attn {

// Qwen3.5's sizes of recurrent layers, and what turns, into a config.json of the text part.
void add_qwen35(io::JsonObject::Json& config, const io::GgufMetadata& metadata);
// How many layers at a file's end guess tokens ahead, which are not read.
std::int64_t layers_ahead(const io::GgufMetadata& metadata);
// Parts of a recurrent layer by llama.cpp's names, with those of Hugging Face's files behind "linear_attn.".
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kHybridNames{{{"attn_qkv", "in_proj_qkv"},
                                                                                            {"attn_gate", "in_proj_z"},
                                                                                            {"ssm_beta", "in_proj_b"},
                                                                                            {"ssm_alpha", "in_proj_a"},
                                                                                            {"ssm_conv1d", "conv1d"},
                                                                                            {"ssm_norm", "norm"},
                                                                                            {"ssm_out", "out_proj"},
                                                                                            {"ssm_dt", "dt_bias"},
                                                                                            {"ssm_a", "A_log"}}};
// A tensor of a recurrent layer by its name in Hugging Face's files, as these have it.
StoredTensor stored_recurrent(const std::shared_ptr<const io::Gguf>& file, const io::GgufTensor& tensor,
                              const std::string& name, const GatedDeltaConfig& sizes, const std::string& source);

}  // namespace attn
