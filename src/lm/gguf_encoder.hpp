// A GGUF file of the architecture bert as if it were a Hugging Face folder.
#pragma once

#include <filesystem>
#include <vector>

#include "attn/encoder.hpp"
#include "attn/pretrained.hpp"

namespace attn {

struct EncoderFiles {
  EncoderConfig config;
  std::vector<StoredTensor> tensors;
};

EncoderFiles open_gguf_encoder(const std::filesystem::path& path);
EmbeddingSettings gguf_embedding_settings(const std::filesystem::path& path);

}  // namespace attn
