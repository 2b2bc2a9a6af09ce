// A GGUF file as if it were a Hugging Face folder: its config.json, and its tensors in those names and layouts.
#pragma once

#include <filesystem>

#include "attn/pretrained.hpp"

namespace attn {

PretrainedFiles open_gguf_model(const std::filesystem::path& path);

}  // namespace attn
