// A language model that reads and writes text.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attn/generate.hpp"
#include "attn/tokenizer.hpp"
#include "attn/trace.hpp"

namespace attn::tool {

// A model with what the verbs ask of it.
class TextModel {
 public:
  using Ids = std::vector<std::int64_t>;
  using Each = std::function<bool(std::size_t, std::int64_t)>;

  struct Size {
    std::int64_t layers = 0, heads = 0;
  };

  TextModel(std::filesystem::path path, DType weights, Precision precision);
  std::int64_t context_length() const { return model_.config().context_length; }
  std::int64_t vocab_size() const { return model_.config().vocab_size; }
  // Ids that end a text, beside those of its tokenizer.
  Ids end_ids() const { return model_.config().end_ids; }
  // `given`: the folder that --tokenizer names, or empty. Throws Error where there is none.
  std::unique_ptr<Tokenizer> tokenizer(const std::string& given) const;
  Size size() const { return {static_cast<std::int64_t>(model_.config().layers.size()), model_.config().heads}; }
  // What ranks must have alike: sizes, and a fingerprint of weights and configuration.
  std::string identity();
  // Each layer's steps on the ids, as many as the context takes.
  void read(std::span<const std::int64_t> ids, Trace& steps);
  // As generate() of attn/generate.hpp, which says what is thrown.
  std::vector<Continuation> write(const std::vector<Ids>& prompts, const GenerateOptions& options, std::uint64_t seed,
                                  const Each& each) {
    return generate(model_, prompts, options, seed, each);
  }

 private:
  std::filesystem::path path_;
  LanguageModel model_;
};

// Throws Error (file), which says what is at `path`, unless that is a .safetensors or GGUF file, or a folder with a
// config.json or a model.safetensors. `op` is the flag or the verb that was given the path.
void require_model(const char* op, const std::filesystem::path& path);

// The model at --model, with its matrices in `weights`: float32, bfloat16 or int8.
std::unique_ptr<TextModel> load_text_model(const std::filesystem::path& path, DType weights,
                                           Precision precision = Precision::highest);

}  // namespace attn::tool
