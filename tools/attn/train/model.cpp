#include "train/model.hpp"

#include <utility>

#include "attn/checkpoint.hpp"
#include "attn/error.hpp"
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
  Released(LanguageModel model, fs::path from) : model_(std::move(model)), from_(std::move(from)) {}
  CausalLM& module() override { return model_; }
  std::string config() const override { return model_.config().json; }
  void save(const fs::path& file, std::int64_t) override {
    const fs::path folder = file.parent_path();
    save_language_model(folder, model_);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "chat_template.jinja", "generation_config.json"}) {
      if (from_.empty() || !fs::exists(from_ / name) || fs::exists(folder / name)) continue;
      io::save_text(folder / name, std::string(io::as_text(io::read_file(from_ / name, "train").bytes())));
    }
  }

 private:
  LanguageModel model_;
  fs::path from_;  // a folder, or empty
};

}  // namespace

std::unique_ptr<TrainedModel> new_gpt(const GPTConfig& config, Generator& rng) {
  return std::make_unique<Gpt2>(GPT(config, rng));
}

std::unique_ptr<TrainedModel> released_model(const fs::path& from, Precision precision) {
  return std::make_unique<Released>(load_language_model(from, DType::f32, precision),
                                    fs::is_directory(from) ? from : fs::path());
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
  return std::make_unique<Released>(std::move(model), fs::path());
}

}  // namespace attn::tool
