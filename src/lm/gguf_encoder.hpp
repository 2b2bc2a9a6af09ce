// A GGUF file of the architecture bert as if it were a Hugging Face folder.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "attn/encoder.hpp"
#include "attn/pretrained.hpp"
#include "io/bytes.hpp"

namespace attn {

struct EncoderFiles {
  EncoderConfig config;
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string, std::less<>> names = {};  // as PretrainedFiles has them
};

inline constexpr const char* kLoadEncoder = "load_encoder";  // in messages

// Throws Error (data) where the tensors are not those that the config asks for.
Encoder encoder_of(EncoderFiles files, const io::Origin& origin);

EncoderFiles open_gguf_encoder(const std::filesystem::path& path);
EmbeddingSettings gguf_embedding_settings(const std::filesystem::path& path);

}  // namespace attn
