#pragma once

#include "attn/language_model.hpp"
#include "io/json_object.hpp"

namespace attn {

// MiniCPM3 (Hu et al. 2024, "MiniCPM"): Llama's blocks around latent attention, with scales of their own.
void read_minicpm3(const io::JsonObject& json, LanguageModelConfig& config);

}  // namespace attn
