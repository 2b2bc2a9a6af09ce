#include "train/model.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

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
  LanguageModel& module() override { return model_; }
  std::string config() const override { return {}; }
  void save(const fs::path& file, std::int64_t steps) override {
    save_language_model(file, model_, {{"steps", std::to_string(steps)}});
  }

 private:
  GPT model_;
};

class Released : public TrainedModel {
 public:
  explicit Released(LanguageModel model) : model_(std::move(model)) {}
  LanguageModel& module() override { return model_; }
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

void require_weight(const TrainCheckpoint& from, const std::string& name, const Shape& shape) {
  const auto found = from.weights.find(name);
  if (found != from.weights.end() && found->second.shape() == shape && found->second.dtype() == DType::f32) return;
  throw Error(Error::Kind::data, "train", "model." + name + " of shape " + shape.str() + " in " + from.source,
              found == from.weights.end() ? "none" : found->second.shape().str());
}

// The largest tensors that a config speaks of, before a model is made of their sizes: a small file that lies about them
// must not take the machine's memory.
void check_sizes(const GPTConfig& config, const TrainCheckpoint& from) {
  require_weight(from, "wte.weight", {config.vocab_size, config.width});
  require_weight(from, "wpe.weight", {config.context_length, config.width});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    require_weight(from, "h." + std::to_string(i) + ".mlp.c_fc.weight", {4 * config.width, config.width});
  }
}

LanguageModelConfig config_of(const std::string& config, const TrainCheckpoint& from) {
  LanguageModelConfig parsed = parse_language_model_config(config, from.source);
  if (parsed.layers.size() <= from.weights.size()) return parsed;
  throw Error(Error::Kind::data, "train",
              "the tensors of " + std::to_string(parsed.layers.size()) + " layers in " + from.source,
              std::to_string(from.weights.size()));
}

// The checkpoint's tensors take the place of the model's.
std::unique_ptr<TrainedModel> with_weights(std::unique_ptr<TrainedModel> model, const TrainCheckpoint& from) {
  const auto parameters = model->module().parameters();
  for (Parameter* p : parameters) {
    require_weight(from, p->name, p->value.shape());
    p->value = from.weights.at(p->name);
  }
  if (parameters.size() == from.weights.size()) return model;
  throw Error(Error::Kind::data, "train", std::to_string(parameters.size()) + " tensors \"model.…\" in " + from.source,
              std::to_string(from.weights.size()));
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

std::unique_ptr<TrainedModel> new_gpt(const GPTConfig& config, const Generator& rng, Initial initial) {
  Generator same = rng;  // a handle to one stream
  return std::make_unique<Gpt2>(GPT(config, same, initial));
}

std::unique_ptr<TrainedModel> released_model(const fs::path& from, Precision precision) {
  return std::make_unique<Released>(load_language_model(from, DType::f32, precision));
}

std::unique_ptr<TrainedModel> model_of(const TrainCheckpoint& from, const GPTConfig& gpt, const Generator& rng) {
  if (const auto config = from.metadata.find(kConfigOfModel); config != from.metadata.end()) {
    LanguageModelConfig parsed = config_of(config->second, from);
    parsed.precision = gpt.precision;
    return with_weights(std::make_unique<Released>(LanguageModel(parsed, Initial::none)), from);
  }
  check_sizes(gpt, from);
  return with_weights(new_gpt(gpt, rng, Initial::none), from);
}

}  // namespace attn::tool
