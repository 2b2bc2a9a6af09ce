// An encoder, every token of which sees all of its text: BERT (Devlin et al. 2019), and vectors of sentences by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "attn/language_model.hpp"

namespace attn {

struct EncoderConfig {
  LanguageModelConfig model = {};  // its blocks, without a causal mask, and its embeddings
  std::int64_t token_types = 2;    // rows of a table that is added to the embedding; texts here are all of type 0
};

// config.json of the family bert → what it describes, with the defaults of transformers' BertConfig. Throws Error
// (data), naming the key, for what is not supported.
EncoderConfig parse_encoder_config(std::string_view json, std::string_view source = {});

// Which hidden states become the vector of a text: the mean of all tokens' (Reimers & Gurevych 2019), or the first's.
enum class Pooling { mean, first };
// Hidden states (t, width) → that vector (width), divided by its length where `normalised`. Throws Error (shape) where
// there is no token.
Tensor pool(const Tensor& hidden, Pooling pooling, bool normalised);

// Parameters are named as in Hugging Face's BertModel, "encoder.layer.0.attention.self.query.weight". A trace records
// the blocks' steps as "encoder.layer.0.attention.weights", ….
class Encoder : public Module {
 public:
  explicit Encoder(const EncoderConfig& config, Initial initial = Initial::zeros);

  // Token ids int64 (t) or (b, t), t up to context_length → hidden states (…, t, width).
  Tensor forward(const Tensor& ids, Trace* trace = nullptr) override;
  // The same with edits of its steps (attn/edits.hpp).
  Tensor forward(const Tensor& ids, const ForwardOptions& options);
  // The gradient of the last forward(). Ids have none, so that none is returned.
  Gradient backward(const Tensor& d_hidden) override;
  // The vectors (n, width) of n texts of any lengths, without padding: each is the one that its text has alone. They
  // are divided by their length where `normalised`. Throws Error (argument) for no text or an empty one.
  Tensor embed(std::span<const std::vector<std::int64_t>> texts, Pooling pooling = Pooling::mean,
               bool normalised = true);

  std::vector<Parameter*> parameters() override;
  void train(bool on = true) override;
  const EncoderConfig& config() const noexcept { return config_; }

  Parameter words, positions, types;  // (vocab_size, width), (context_length, width), (token_types, width)
  Norm norm;                          // of their sum
  std::vector<std::unique_ptr<Block>> blocks;

 private:
  void embed_together(std::span<const std::vector<std::int64_t>> texts, Pooling pooling, bool normalised,
                      std::vector<Tensor>& vectors);
  Tensor hidden(const Tensor& ids, const Tensor& places, const Tensor& starts, Trace* trace);

  EncoderConfig config_;
  Dropout dropout_;
  Tensor ids_;  // (b, t), of the last forward pass
};

// Reads a Hugging Face folder of the family bert, BertModel's or with the prefix "bert.", or a GGUF file of the
// architecture bert. What is beside the encoder (the pooler, heads for other tasks) is passed over. Throws Error as
// load_language_model() does.
Encoder load_encoder(const std::filesystem::path& path);
// The same of the bytes of a safetensors file, which are there as long as the encoder is, and the text of its
// config.json. `source` names it in messages.
Encoder load_encoder(std::span<const std::byte> bytes, std::string_view config, std::string_view source);

// Whether load_encoder() is who reads it: a folder whose config.json names the family bert, or a GGUF file of that
// architecture. Throws Error (data) for a file that begins as GGUF and is none.
bool is_encoder(const std::filesystem::path& path);

inline constexpr std::int64_t kNoLongest = std::numeric_limits<std::int64_t>::max();

// How a text becomes its vector. The files of sentence-transformers tell it in a folder that has modules.json: the
// pooling, a division by the length, and after how many tokens a text is cut. Without them it is the mean, not divided,
// of texts that are never cut. A GGUF file tells the pooling, and its vectors are divided, as llama.cpp does it. Throws
// Error (data) for what is not supported, and (file) where there is neither.
struct EmbeddingSettings {
  Pooling pooling = Pooling::mean;
  bool normalised = false;
  std::int64_t longest = kNoLongest;
};
EmbeddingSettings embedding_settings(const std::filesystem::path& path);

}  // namespace attn
