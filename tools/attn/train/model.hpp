// The model that a run trains: a GPT of its own, or a released model that goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attn/gpt.hpp"
#include "attn/random.hpp"
#include "attn/train.hpp"

namespace attn::tool {

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  virtual LanguageModel& module() = 0;
  // The config.json of a released model, else nothing.
  virtual std::string config() const = 0;
  // Writes `file`, a .safetensors, and a released model's config.json beside it.
  virtual void save(const std::filesystem::path& file, std::int64_t steps) = 0;
};

// What a released model's folder has beside its weights and its config.
using Companions = std::vector<std::pair<std::string, std::string>>;  // names and contents

// Of a folder's, those of its tokenizer, or its settings for generation; nothing of a GGUF file.
Companions tokenizer_files(const std::filesystem::path& from);
Companions generation_files(const std::filesystem::path& from);
// Whether a training writes a file of that name into a model's folder.
bool is_companion(const std::string& name);

constexpr const char* kConfigOfModel = "config.json";  // in a checkpoint's metadata, of a released model

std::unique_ptr<TrainedModel> new_gpt(const GPTConfig& config, const Generator& rng, Initial initial);
// A released model's folder or GGUF file, with products of that precision.
std::unique_ptr<TrainedModel> released_model(const std::filesystem::path& from, Precision precision);
// Either from a checkpoint: the config of a released model is there, and that of a GPT is given. Throws Error (data)
// where the weights are not those of the config, before it takes memory of the config's sizes.
std::unique_ptr<TrainedModel> model_of(const TrainCheckpoint& from, const GPTConfig& gpt, const Generator& rng);

}  // namespace attn::tool
