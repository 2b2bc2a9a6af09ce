#include "train/model.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "attn/checkpoint.hpp"
#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "io/file.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

class Gpt2 : public TrainedModel {
 public:
  explicit Gpt2(GPT model) : model_(std::move(model)) {}
  CausalLM& module() override { return model_; }
  std::string config() const override { return {}; }
  void save(const fs::path& file, std::int64_t steps) override {
    save_gpt(file, model_, {{"steps", std::to_string(steps)}});
  }

 private:
  GPT model_;
};

class Released : public TrainedModel {
 public:
  explicit Released(LanguageModel model) : model_(std::move(model)) {}
  CausalLM& module() override { return model_; }
  std::string config() const override { return model_.config().json; }
  void save(const fs::path& file, std::int64_t) override { save_language_model(file.parent_path(), model_); }

 private:
  LanguageModel model_;
};

constexpr std::array kTokenizerFiles{
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "chat_template.json"};
constexpr std::array kGenerationFiles{"generation_config.json"};

Companions read_there(const fs::path& folder, std::span<const char* const> names) {
  Companions files;
  if (!fs::is_directory(folder)) return files;
  for (const char* name : names) {
    if (fs::exists(folder / name)) files.emplace_back(name, io::as_text(io::read_file(folder / name, "train").bytes()));
  }
  return files;
}

}  // namespace

Companions tokenizer_files(const fs::path& from) {
  if (!fs::is_regular_file(from) || io::is_gguf(from)) return read_there(from, kTokenizerFiles);
  return {{"tokenizer.json", std::string(io::as_text(io::read_file(from, "train").bytes()))}};
}

Companions generation_files(const fs::path& from) { return read_there(from, kGenerationFiles); }

bool is_companion(const std::string& name) {
  return std::ranges::count(kTokenizerFiles, name) + std::ranges::count(kGenerationFiles, name) > 0;
}

std::unique_ptr<TrainedModel> new_gpt(const GPTConfig& config, Generator& rng) {
  return std::make_unique<Gpt2>(GPT(config, rng));
}

std::unique_ptr<TrainedModel> released_model(const fs::path& from, Precision precision) {
  return std::make_unique<Released>(load_language_model(from, DType::f32, precision));
}

std::unique_ptr<TrainedModel> released_model(const std::string& config, const StateDict& state, Precision precision,
                                             const std::string& source) {
  LanguageModelConfig parsed = parse_language_model_config(config, source);
  if (parsed.layers.size() > state.size()) {
    throw Error(Error::Kind::data, "train",
                "the tensors of " + std::to_string(parsed.layers.size()) + " layers in " + source,
                std::to_string(state.size()));
  }
  parsed.precision = precision;
  LanguageModel model(parsed, false);  // without parameters' memory, which the state's take the place of
  for (Parameter* p : model.parameters()) {
    const auto found = state.find(p->name);
    if (found == state.end() || !(found->second.shape() == p->value.shape()) || found->second.dtype() != DType::f32) {
      throw Error(Error::Kind::data, "train",
                  "model." + p->name + " of shape " + p->value.shape().str() + " in " + source,
                  found == state.end() ? "none" : found->second.shape().str());
    }
    p->value = found->second;
  }
  return std::make_unique<Released>(std::move(model));
}

}  // namespace attn::tool
