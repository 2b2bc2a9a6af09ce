// parse_rope_config() of an object that has been parsed, and that then knows which of its keys were read.
#pragma once

#include <string_view>

#include "attn/rotary.hpp"
#include "io/json_object.hpp"

namespace attn {

RopeConfig rope_config_of(const io::JsonObject& config, std::string_view layer_type, double default_theta);

}  // namespace attn
