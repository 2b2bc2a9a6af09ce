// A language model that reads and writes text.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "attn/generate.hpp"
#include "attn/layers.hpp"
#include "attn/tokenizer.hpp"
#include "attn/trace.hpp"

namespace attn::tool {

// A model with what the verbs ask of it.
class TextModel {
 public:
  using Ids = std::vector<std::int64_t>;
  using Each = std::function<bool(std::size_t, std::int64_t)>;

  struct Size {
    std::int64_t layers = 0, heads = 0;  // of the layer that has most
  };

  TextModel(std::filesystem::path path, std::optional<DType> weights, Precision precision);
  // An encoder, which reads and does not write.
  TextModel(std::filesystem::path path, Encoder encoder);
  bool writes() const { return model_ != nullptr; }
  std::int64_t context_length() const { return config().context_length; }
  std::int64_t vocab_size() const { return config().vocab_size; }
  // Ids that end a text, beside those of its tokenizer.
  Ids end_ids() const { return config().end_ids; }
  // `given`: the folder that --tokenizer names, or empty. Throws Error where there is none.
  std::unique_ptr<Tokenizer> tokenizer(const std::string& given) const;
  const LanguageModelConfig& config() const { return model_ ? model_->config() : encoder_->config().model; }
  Size size() const { return {static_cast<std::int64_t>(config().layers.size()), config().most_heads()}; }
  // Experiments are made on one of these two; the other is null.
  LanguageModel* language_model() { return model_.get(); }
  Encoder* encoder() { return encoder_.get(); }
  // Whether layers keep a state in place of keys and values.
  bool is_recurrent() const {
    return std::ranges::any_of(config().layers, [](const LayerConfig& l) { return l.mixer != Mixer::softmax; });
  }
  bool has_latents() const { return config().latent.has_value(); }  // which keys and values are made of
  // Returns what ranks must have alike: sizes, and a fingerprint of weights and configuration.
  std::string identity();
  // Each layer's steps on the ids, as many as the context takes.
  void read(std::span<const std::int64_t> ids, Trace& steps);
  // The same, a layer at a time, of the layers that are wanted: of all where there are none. See attn/layers.hpp.
  void read(std::span<const std::int64_t> ids, const std::set<std::size_t>& wanted, const LayerSteps& each);
  // As generate() of attn/generate.hpp, which says what is thrown.
  std::vector<Continuation> write(const std::vector<Ids>& prompts, const GenerateOptions& options, std::uint64_t seed,
                                  const Each& each) {
    return generate(*model_, prompts, options, seed, each);
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Encoder> encoder_;  // one of the two
};

// Throws Error (file), which says what is at `path`, unless that is a .safetensors or GGUF file, or a folder with a
// config.json or a model.safetensors. `op` is the flag or the verb that was given the path.
void require_model(const char* op, const std::filesystem::path& path);

// The model at --model, with its matrices in `weights`: float32, bfloat16 or int8, or as the file has them.
std::unique_ptr<TextModel> load_text_model(const std::filesystem::path& path, std::optional<DType> weights,
                                           Precision precision = Precision::highest);

// The same, or an encoder: what reads a text.
std::unique_ptr<TextModel> load_reader(const std::filesystem::path& path, std::optional<DType> weights = DType::f32);

}  // namespace attn::tool
