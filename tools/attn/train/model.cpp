#include "train/model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "common/json.hpp"
#include "io/file.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTokenizerFiles{"tokenizer.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "vocab.json",
                                     "vocab.txt",
                                     "merges.txt",
                                     "tokenizer.model",
                                     "chat_template.jinja",
                                     "chat_template.json"};
constexpr std::array kGenerationFiles{"generation_config.json"};
constexpr const char* kTemplates = "additional_chat_templates";  // a folder

std::string text_of(const fs::path& file) { return std::string(io::as_text(io::read_file(file, "train").bytes())); }

Companions read_there(const fs::path& folder, std::span<const char* const> names) {
  Companions files;
  if (!fs::is_directory(folder)) return files;
  for (const char* name : names) {
    if (fs::exists(folder / name)) files.emplace_back(name, text_of(folder / name));
  }
  return files;
}

bool is_template(const fs::path& file) { return file.extension() == ".jinja" && fs::is_regular_file(file); }

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
LanguageModel with_weights(LanguageModel model, const TrainCheckpoint& from) {
  const auto parameters = model.parameters();
  for (Parameter* p : parameters) {
    require_weight(from, p->name, p->value.shape());
    p->value = from.weights.at(p->name);
  }
  if (parameters.size() == from.weights.size()) return model;
  throw Error(Error::Kind::data, "train", std::to_string(parameters.size()) + " tensors \"model.…\" in " + from.source,
              std::to_string(from.weights.size()));
}

// Two thirds of GPT-2's, as a gate takes a third matrix (Shazeer 2020), in steps of 16.
std::int64_t gated_width(std::int64_t width) { return (8 * width / 3 + 15) / 16 * 16; }

}  // namespace

Companions tokenizer_files(const fs::path& from) {
  if (fs::is_regular_file(from) && !io::is_gguf(from)) return {{"tokenizer.json", text_of(from)}};
  Companions files = read_there(from, kTokenizerFiles);
  if (!fs::is_directory(from / kTemplates)) return files;
  for (const auto& entry : fs::directory_iterator(from / kTemplates)) {
    if (is_template(entry.path())) files.emplace_back(kTemplates / entry.path().filename(), text_of(entry.path()));
  }
  return files;
}

Companions generation_files(const fs::path& from) { return read_there(from, kGenerationFiles); }

bool is_companion(const fs::path& file) {
  const std::string name = file.filename().string();
  if (fs::is_directory(file)) {
    return name == kTemplates &&
           std::ranges::all_of(fs::directory_iterator(file), is_template, &fs::directory_entry::path);
  }
  return std::ranges::count(kTokenizerFiles, name) + std::ranges::count(kGenerationFiles, name) > 0;
}

LanguageModelConfig new_config(const std::string& family, const GPTConfig& sizes, std::int64_t kv_heads) {
  LanguageModelConfig config = language_model_config(sizes);  // which checks the sizes
  if (family != "gpt2") {
    const std::int64_t head_dim = sizes.width / sizes.heads;
    Json json{{"model_type", family},
              {"vocab_size", sizes.vocab_size},
              {"hidden_size", sizes.width},
              {"intermediate_size", gated_width(sizes.width)},
              {"num_hidden_layers", sizes.layers},
              {"num_attention_heads", sizes.heads},
              {"num_key_value_heads", kv_heads == 0 ? sizes.heads : kv_heads},
              {"head_dim", head_dim},
              {"max_position_embeddings", sizes.context_length},
              {"eos_token_id", nullptr}};
    if (family.starts_with("gemma")) json["query_pre_attn_scalar"] = head_dim;
    if (family == "minicpm3") {  // its largest model's shares; no other scale of logits in small ones
      json.erase("head_dim"), json["dim_model_base"] = nullptr;
      json["q_lora_rank"] = std::min(12 * head_dim, sizes.width),
      json["kv_lora_rank"] = std::min(4 * head_dim, sizes.width);
      json["qk_nope_head_dim"] = head_dim, json["qk_rope_head_dim"] = std::max<std::int64_t>(head_dim / 4 * 2, 2);
    }
    if (family == "qwen3_5_text") {  // as many heads, of as many numbers, in layers of either kind
      json["linear_num_key_heads"] = json["linear_num_value_heads"] = sizes.heads;
      json["linear_key_head_dim"] = json["linear_value_head_dim"] = head_dim;
    }
    if (family == "granite") json["attention_multiplier"] = 1 / std::sqrt(static_cast<double>(head_dim));
    config = parse_language_model_config(json.dump(2) + "\n", "--family");
  }
  config.precision = sizes.precision;
  return config;
}

LanguageModel model_of(const TrainCheckpoint& from, const GPTConfig& gpt, Generator& rng) {
  if (const auto config = from.metadata.find(kConfigOfModel); config != from.metadata.end()) {
    LanguageModelConfig parsed = config_of(config->second, from);
    parsed.precision = gpt.precision;
    return with_weights(LanguageModel(parsed, rng, Initial::none), from);
  }
  check_sizes(gpt, from);
  return with_weights(GPT(gpt, rng, Initial::none), from);
}

}  // namespace attn::tool
