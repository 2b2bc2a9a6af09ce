// A GGUF file as if it were a Hugging Face folder: its config.json, and its tensors in those names and layouts.
#pragma once

#include <memory>
#include <string>

#include "attn/gguf.hpp"
#include "attn/pretrained.hpp"

namespace attn {

// `source` names the file in messages.
PretrainedFiles open_gguf_model(const std::shared_ptr<const io::Gguf>& file, const std::string& source);

}  // namespace attn
