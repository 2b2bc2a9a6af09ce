// GPTConfig from an object that has been parsed.
#pragma once

#include "attn/gpt.hpp"
#include "io/json_object.hpp"

namespace attn {

GPTConfig gpt_config_of(const io::JsonObject& json);

}  // namespace attn
