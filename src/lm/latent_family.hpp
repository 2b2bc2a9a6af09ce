#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attn/language_model.hpp"
#include "io/json_object.hpp"

namespace attn {

// MiniCPM3 (Hu et al. 2024, "MiniCPM"): Llama's blocks around latent attention, with scales of their own.
void read_minicpm3(const io::JsonObject& json, LanguageModelConfig& config);

// Returns names and shapes of a file's tensors that the latents have to fit, those of the first layer.
std::vector<std::pair<std::string, Shape>> latent_shapes(const LanguageModelConfig& config);

}  // namespace attn
