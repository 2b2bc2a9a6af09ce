// A GGUF file of the architecture bert as if it were a Hugging Face folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attn/encoder.hpp"
#include "attn/gguf.hpp"
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

// Whether a file is of the architecture bert.
bool is_gguf_encoder(const io::Gguf& file);
// `source` names the file in messages.
EncoderFiles open_gguf_encoder(const std::shared_ptr<const io::Gguf>& file, std::string_view source);
EmbeddingSettings gguf_embedding_settings(const io::Gguf& file, std::string_view source);

}  // namespace attn
