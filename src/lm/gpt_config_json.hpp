// GPTConfig from an object that has been parsed.
#pragma once

#include "attn/gpt.hpp"
#include "io/json_object.hpp"

namespace attn {

// The model_type of a GPT-2 whose layers are not all softmax attention.
constexpr const char* kHybrid = "attn_gpt";

GPTConfig gpt_config_of(const io::JsonObject& json);

}  // namespace attn
