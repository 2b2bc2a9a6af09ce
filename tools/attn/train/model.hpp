// The model that a run trains, and what a released one's folder has beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "attn/gpt.hpp"
#include "attn/random.hpp"
#include "attn/train.hpp"

namespace attn::tool {

// A released model's folder has these beside its weights and its config.
using Companions = std::vector<std::pair<std::string, std::string>>;  // names and contents

// Returns a folder's files of its tokenizer, or its settings for generation; nothing for a GGUF file.
Companions tokenizer_files(const std::filesystem::path& from);
Companions generation_files(const std::filesystem::path& from);
// Whether a training writes a file, or a folder of templates, of that name into a model's folder.
bool is_companion(const std::filesystem::path& file);

constexpr const char* kConfigOfModel = "config.json";  // in a checkpoint's metadata

// A new model of a family, by the sizes of a GPT: its feed-forward is 8/3 as wide inside where it has a gate, and what
// the sizes do not say is the family's default. kv_heads: 0 = heads. Throws Error for sizes that do not fit.
LanguageModelConfig new_config(const std::string& family, const GPTConfig& sizes, std::int64_t kv_heads);
// The model of a checkpoint, by the config.json in it, or else a GPT. Throws Error (data) where the weights are not
// those of the config, before it takes memory of the config's sizes.
LanguageModel model_of(const TrainCheckpoint& from, const GPTConfig& gpt, Generator& rng);

}  // namespace attn::tool
