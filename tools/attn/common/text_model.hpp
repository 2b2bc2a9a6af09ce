// A model of either kind that reads and writes text: GPT-2's, or one of the families of attn/pretrained.hpp.
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

class TextModel {
 public:
  using Ids = std::vector<std::int64_t>;
  using Each = std::function<bool(std::size_t, std::int64_t)>;

  struct Size {
    std::int64_t layers = 0, heads = 0;
  };

  virtual ~TextModel() = default;
  virtual std::int64_t context_length() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  // Ids that end a text, beside those of its tokenizer.
  virtual Ids end_ids() const { return {}; }
  // `given`: the folder that --tokenizer names, or empty. Throws Error where there is none.
  virtual std::unique_ptr<Tokenizer> tokenizer(const std::string& given) const = 0;
  virtual Size size() const = 0;
  // What ranks must have alike: sizes, and a fingerprint of weights and configuration.
  virtual std::string identity() = 0;
  // Each layer's steps on the ids, as many as the context takes.
  virtual void read(std::span<const std::int64_t> ids, Trace& steps) = 0;
  // As generate() of attn/generate.hpp, which says what is thrown.
  virtual std::vector<Continuation> write(const std::vector<Ids>& prompts, const GenerateOptions& options,
                                          std::uint64_t seed, const Each& each) = 0;
};

// Throws Error (file), which says what is at `path`, unless that is a .safetensors or GGUF file, or a folder with a
// config.json or a model.safetensors. `op` is the flag or the verb that was given the path.
void require_model(const char* op, const std::filesystem::path& path);

// The model at --model, with its matrices in `weights`: float32, bfloat16 or int8.
std::unique_ptr<TextModel> load_text_model(const std::filesystem::path& path, DType weights,
                                           Precision precision = Precision::highest);

}  // namespace attn::tool
