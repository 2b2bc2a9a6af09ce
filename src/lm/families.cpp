// A family of models is a reader of its config.json, with the defaults of transformers' config class.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "attn/error.hpp"
#include "attn/pretrained.hpp"
#include "io/json_object.hpp"
#include "io/passed_over.hpp"
#include "lm/config_readers.hpp"
#include "lm/gpt_config_json.hpp"
#include "lm/hybrid_family.hpp"
#include "lm/latent_family.hpp"
#include "rotary/config_json.hpp"

namespace attn {
namespace {

using io::JsonObject;
using Json = JsonObject::Json;
using Config = LanguageModelConfig;

constexpr const char* kParse = "parse_language_model_config";
constexpr double kMost = 1e30;
constexpr std::int64_t kMostLayers = 4096;

// ---- parts that families share -----------------------------------------------------------

std::int64_t required(const JsonObject& json, const char* key) {
  if (!json.find(key)) json.wrong(key, "there", nullptr);
  return json.size(key, 0);
}

Activation activation_of(const JsonObject& json, const char* key, const char* otherwise) {
  const std::string name = json.text(key, otherwise);
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu;
  json.wrong(key, "silu (swish), gelu_pytorch_tanh (gelu_new) or gelu", name);
}

// Returns a softcap: 0, which is none, where the key is null, and `otherwise` where it is not there. Throws for a 0 in
// the file: in GGUF files alone it means none, and transformers divides by it.
double number_or_none(const JsonObject& json, const char* key, double otherwise) {
  if (!json.find(key)) return json.has(key) ? 0 : otherwise;
  const double cap = json.number(key, otherwise, 0, kMost);
  if (cap == 0) json.wrong(key, "more, or null for none", cap);
  return cap;
}

std::int64_t window_or_none(const JsonObject& json, std::int64_t otherwise) {
  const bool none = json.has("sliding_window") && !json.find("sliding_window");
  return none || (otherwise == 0 && !json.find("sliding_window")) ? 0 : json.size("sliding_window", otherwise);
}

// Returns the window where a flag turns it on, else 0. Files have its size where it is off, too, and it must be one.
std::int64_t window_if_used(const JsonObject& json, std::int64_t otherwise) {
  const std::int64_t window = window_or_none(json, otherwise);
  return json.flag("use_sliding_window", false) ? window : 0;
}

// `otherwise` where the key is not there at all; 0 stands for none.
std::vector<std::int64_t> ids_of(const JsonObject& json, const char* key, std::int64_t otherwise) {
  std::vector<std::int64_t> ids;
  const Json* value = json.find(key);
  if (!value) return otherwise == 0 || json.has(key) ? ids : std::vector{otherwise};
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& id : list) {
    if (!id.is_number_unsigned()) json.wrong(key, "an id, or a list of them", *value);
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

// Layers whose type is sliding_attention by layer_types, or else by `slides`, have the window.
template <class F>
void window_layers(const JsonObject& json, Config& c, std::int64_t window, const F& slides) {
  const Json* types = json.find("layer_types");
  if (types && (!types->is_array() || types->size() != c.layers.size())) {
    json.wrong("layer_types", "a list of " + std::to_string(c.layers.size()), *types);
  }
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    bool sliding = slides(i);
    if (types) {
      const Json& type = (*types)[i];
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention") {
        json.wrong("layer_types", "full_attention and sliding_attention alone", type);
      }
      if (sliding && window == 0) json.wrong("layer_types", "full_attention alone where there is no window", type);
    }
    if (sliding && window == 0) json.wrong("sliding_window", "there, for the layers that have one", nullptr);
    c.layers[i].window = sliding ? window : 0;
  }
}

void no_windows(const JsonObject& json, Config& c) {
  window_layers(json, c, 0, [](std::size_t) { return false; });
}

// Gives all layers but every n-th a window; those with one have rotary frequencies of their own.
void windows_and_ropes(const JsonObject& json, Config& c, std::int64_t full_every, double full_theta,
                       double sliding_theta) {
  window_layers(json, c, window_or_none(json, 4096),
                [&](std::size_t i) { return (static_cast<std::int64_t>(i) + 1) % full_every != 0; });
  for (const auto& [type, theta] : {std::pair{"full_attention", full_theta}, {"sliding_attention", sliding_theta}}) {
    c.ropes.push_back(rope_config_of(json, type, theta));
    c.ropes.back().head_dim = c.head_dim;
  }
  for (LayerConfig& layer : c.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void every_window(const JsonObject& json, Config& c, std::int64_t otherwise) {
  const std::int64_t window = window_or_none(json, otherwise);
  for (LayerConfig& layer : c.layers) layer.window = window;
}

void qwen_windows(const JsonObject& json, Config& c) {
  const std::int64_t window = window_if_used(json, 4096);
  const double first = json.number("max_window_layers", 28, 0, kMost);
  window_layers(json, c, window, [&](std::size_t i) { return window > 0 && static_cast<double>(i) >= first; });
}

void one_rope(const JsonObject& json, Config& c, double theta = 10000) {
  RopeConfig rope = rope_config_of(json, {}, theta);
  rope.head_dim = c.head_dim;
  c.ropes = {rope};
}

void attention_biases(const JsonObject& json, Config& c) {
  c.qkv_bias = c.out_bias = json.flag("attention_bias", false);
}

// ---- the families ------------------------------------------------------------------------

void llama(const JsonObject& json, Config& c) {
  c.tied = json.flag("tie_word_embeddings", false);
  attention_biases(json, c);
  c.feed_forward_bias = json.flag("mlp_bias", false);
  no_windows(json, c);
  one_rope(json, c);
}

void mistral(const JsonObject& json, Config& c) {
  c.tied = json.flag("tie_word_embeddings", false);
  c.kv_heads = json.size("num_key_value_heads", json.has("num_key_value_heads") ? c.heads : 8);
  every_window(json, c, 4096);
  one_rope(json, c);
}

void qwen2(const JsonObject& json, Config& c) {
  c.tied = json.flag("tie_word_embeddings", false);
  c.qkv_bias = true;
  qwen_windows(json, c);
  one_rope(json, c);
}

void qwen3(const JsonObject& json, Config& c) {
  c.tied = json.flag("tie_word_embeddings", false);
  c.head_dim = json.size("head_dim", 128);
  attention_biases(json, c);
  c.query_key_norm = QueryKeyNorm::each_head;
  qwen_windows(json, c);
  one_rope(json, c);
}

// Gemma 2 and 3 share these keys.
void gemma(const JsonObject& json, Config& c) {
  json.require("use_bidirectional_attention", false);
  c.tied = json.flag("tie_word_embeddings", true);
  c.kv_heads = json.size("num_key_value_heads", 4);
  c.head_dim = json.size("head_dim", 256);
  attention_biases(json, c);
  c.activation = activation_of(json, "hidden_activation", "gelu_pytorch_tanh");
  const Json* older = json.find("hidden_act");  // which transformers does not read
  if (older && activation_of(json, "hidden_act", "") != c.activation) {
    json.wrong("hidden_act", "absent, or the same as hidden_activation", *older);
  }
  c.norm = NormForm::rms_plus_one;
  c.post_norm = true;
  c.attention_scale = 1 / std::sqrt(json.number("query_pre_attn_scalar", 256, 1e-6, kMost));
  c.embedding_scale = std::sqrt(static_cast<double>(c.width));
}

void gemma2(const JsonObject& json, Config& c) {
  gemma(json, c);
  c.attention_softcap = number_or_none(json, "attn_logit_softcapping", 50);
  c.logits_softcap = number_or_none(json, "final_logit_softcapping", 30);
  window_layers(json, c, window_or_none(json, 4096), [](std::size_t i) { return i % 2 == 0; });
  one_rope(json, c);
}

void gemma3(const JsonObject& json, Config& c) {
  gemma(json, c);
  json.require("attn_logit_softcapping", nullptr);  // which transformers' Gemma 3 has, and does not compute
  c.logits_softcap = number_or_none(json, "final_logit_softcapping", 0);
  c.query_key_norm = QueryKeyNorm::each_head;
  const std::int64_t every = json.size("sliding_window_pattern", 6);
  if (!json.find("layer_types")) json.require("_sliding_window_pattern", every);
  json.pass_over({"_sliding_window_pattern"});  // transformers writes it beside the layer_types that it follows from
  windows_and_ropes(json, c, every, 1e6, 1e4);
}

void smollm3(const JsonObject& json, Config& c) {
  c.tied = json.flag("tie_word_embeddings", true);
  c.kv_heads = json.size("num_key_value_heads", json.has("num_key_value_heads") ? c.heads : 4);
  attention_biases(json, c);
  c.feed_forward_bias = json.flag("mlp_bias", false);
  one_rope(json, c, 2e6);
  const std::int64_t interval = json.size("no_rope_layer_interval", 4);
  const Json* turns = json.find("no_rope_layers");  // 1 where positions turn, in spite of its name
  if (turns && (!turns->is_array() || turns->size() < c.layers.size())) {
    json.wrong("no_rope_layers", "a list of " + std::to_string(c.layers.size()), *turns);
  }
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (turns && (*turns)[i] != 0 && (*turns)[i] != 1) json.wrong("no_rope_layers", "0 and 1 alone", (*turns)[i]);
    const bool turned = turns ? (*turns)[i] == 1 : (static_cast<std::int64_t>(i) + 1) % interval != 0;
    if (!turned) c.layers[i].rope = std::nullopt;
  }
  const std::int64_t window = window_if_used(json, 0);
  window_layers(json, c, window, [&](std::size_t i) { return window > 0 && !c.layers[i].rope; });
}

// OLMo 2 and 3 share these keys.
void olmo(const JsonObject& json, Config& c) {
  c.epsilon = json.number("rms_norm_eps", 1e-5, 0, 1);
  c.tied = json.flag("tie_word_embeddings", false);
  attention_biases(json, c);
  c.pre_norm = false;
  c.post_norm = true;
  c.query_key_norm = QueryKeyNorm::all_heads;
}

void olmo2(const JsonObject& json, Config& c) {
  olmo(json, c);
  no_windows(json, c);
  one_rope(json, c);
}

void olmo3(const JsonObject& json, Config& c) {
  olmo(json, c);
  windows_and_ropes(json, c, 4, 5e5, 5e5);
}

void phi3(const JsonObject& json, Config& c) {
  c.epsilon = json.number("rms_norm_eps", 1e-5, 0, 1);
  c.tied = json.flag("tie_word_embeddings", false);
  every_window(json, c, 0);
  one_rope(json, c);
}

void granite(const JsonObject& json, Config& c) {
  llama(json, c);
  c.embedding_scale = json.number("embedding_multiplier", 1, -kMost, kMost);
  c.residual_scale = json.number("residual_multiplier", 1, -kMost, kMost);
  c.attention_scale = json.number("attention_multiplier", 1, -kMost, kMost);
  c.logits_scale = 1 / json.number("logits_scaling", 1, 1e-30, kMost);
}

struct Family {
  const char* name;
  void (*read)(const JsonObject&, Config&);
  std::int64_t end;  // of texts, where eos_token_id is absent; 0 = none
};

constexpr std::array<Family, 14> kFamilies{{{"llama", llama, 2},
                                            {"mistral", mistral, 2},
                                            {"qwen2", qwen2, 0},
                                            {"qwen3", qwen3, 0},
                                            {"gemma2", gemma2, 1},
                                            {"gemma3_text", gemma3, 1},
                                            {"smollm3", smollm3, 128001},
                                            {"olmo2", olmo2, 50279},
                                            {"olmo3", olmo3, 50279},
                                            {"phi3", phi3, 32000},
                                            {"granite", granite, 2},
                                            {"minicpm3", read_minicpm3, 2},
                                            {"olmo_hybrid", read_olmo_hybrid, 100257},
                                            {"qwen3_5_text", read_qwen3_5, 0}}};

// Sizes that no family can do without, and what is the same in all of them.
Config common(const JsonObject& json, const Family& family) {
  Config c;
  c.family = family.name;
  if (const Json* quantized = json.find("quantization_config")) {
    json.wrong("quantization_config", "absent: weights in floating dtypes", *quantized);
  }
  c.vocab_size = required(json, "vocab_size");
  c.width = required(json, "hidden_size");
  c.inner_width = required(json, "intermediate_size");
  c.heads = required(json, "num_attention_heads");
  c.context_length = required(json, "max_position_embeddings");
  const std::int64_t layers = required(json, "num_hidden_layers");
  if (layers > kMostLayers) json.wrong("num_hidden_layers", "at most " + std::to_string(kMostLayers), layers);
  c.layers.resize(static_cast<std::size_t>(layers));
  c.kv_heads = json.size("num_key_value_heads", c.heads);
  c.head_dim = json.find("head_dim") ? json.size("head_dim", 0) : c.width / c.heads;
  c.epsilon = json.number("rms_norm_eps", 1e-6, 0, 1);
  if (!c.family.starts_with("gemma")) c.activation = activation_of(json, "hidden_act", "silu");
  c.end_ids = ids_of(json, "eos_token_id", family.end);
  return c;
}

// GPT-2's config.json has other names for everything.
Config gpt2(const JsonObject& json) {
  constexpr std::int64_t end = 50256;
  std::vector<std::int64_t> ends = ids_of(json, "eos_token_id", end);
  const GPTConfig sizes = gpt_config_of(json);
  if (sizes.layers > kMostLayers)
    json.wrong("n_layer", "at most " + std::to_string(kMostLayers) + " layers", sizes.layers);
  Config c = language_model_config(sizes);
  const bool said = json.has("eos_token_id");
  if (said || c.vocab_size > end) c.end_ids = std::move(ends);
  return c;
}

// Numbers of which no frequencies can be made are the file's mistake.
void check_rope(const JsonObject& json, const RopeConfig& rope, std::int64_t longest) {
  try {
    rotary_frequencies(rope, 0);
    rotary_frequencies(rope, longest);
  } catch (const Error& error) {
    const std::string_view text = error.what(), before = "expected ", between = "; found ";
    const std::size_t expected = text.find(before) + before.size(), found = text.find(between, expected);
    json.origin().fail(text.substr(expected, found - expected), text.substr(found + between.size()));
  }
}

void check(const JsonObject& json, const Config& c) {
  if (c.heads % c.kv_heads != 0) {
    json.wrong("num_key_value_heads", "a divisor of num_attention_heads = " + std::to_string(c.heads), c.kv_heads);
  }
  for (const RopeConfig& rope : c.ropes) {
    if (c.family != "phi3" && c.family != "qwen3_5_text" && rope.partial_rotary_factor != 1) {
      json.wrong("partial_rotary_factor", "1: of these families Phi-3 and Qwen3.5 alone turn a part of each head",
                 rope.partial_rotary_factor);
    }
  }
  const Json* original = json.find("original_max_position_embeddings");
  if (original && c.family != "phi3") {
    json.wrong("original_max_position_embeddings", "among the rope parameters: Phi-3 alone has it beside them",
               *original);
  }
  if (c.head_dim < 1) json.wrong("hidden_size", "at least num_attention_heads", c.width);
  constexpr std::int64_t most = std::int64_t{1} << 31;
  if (c.head_dim > most / c.heads) json.wrong("head_dim", "heads of at most 2^31 numbers together", c.head_dim);
  for (const RopeConfig& rope : c.ropes) check_rope(json, rope, c.context_length);
}

constexpr const char *kWhole = "qwen3_5", *kTextPart = "qwen3_5_text";

// Returns the part that reads text, of a model that reads text and pictures, as transformers' Qwen3_5ForCausalLM takes
// it. What tells of pictures is left out: their layers, and the ids in whose place they stand.
Config text_part(const JsonObject& whole) {
  const Json* part = whole.find("text_config");
  if (!part || !part->is_object()) whole.wrong("text_config", "an object", part ? *part : Json());
  whole.pass_over({"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
                   "language_model_only"});
  const JsonObject json(*part, whole.origin());
  if (const std::string name = json.text("model_type", kTextPart); name != kTextPart) {
    json.wrong("text_config.model_type", kTextPart, name);
  }
  Json told = *part;
  told["model_type"] = kTextPart;
  if (const Json* tied = whole.find("tie_word_embeddings")) {
    const Json& own = told.emplace("tie_word_embeddings", *tied).first.value();
    if (own != *tied) whole.wrong("tie_word_embeddings", "that of text_config, " + own.dump(), *tied);
  }
  whole.finish({kConfigPassedOver, kMoreConfigPassedOver});
  return language_model_config_of(told.dump(), whole.origin());
}

}  // namespace

std::vector<std::string> language_model_families() {
  std::vector<std::string> names{"gpt2"};
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

LanguageModelConfig parse_language_model_config(std::string_view text, std::string_view source) {
  return language_model_config_of(text, {kParse, source});
}

LanguageModelConfig language_model_config_of(std::string_view text, const io::Origin& origin) {
  const JsonObject json(text, origin);
  const std::string name = json.text("model_type", json.find("n_embd") ? "gpt2" : "");
  if (name == "gpt2" || name == kHybrid) {
    Config config = gpt2(json);
    config.json = std::string(text);
    return config;
  }
  if (name == kWhole) return text_part(json);
  const auto family = std::ranges::find_if(kFamilies, [&](const Family& f) { return name == f.name; });
  if (family == kFamilies.end()) {
    std::string known = "gpt2";
    for (const Family& f : kFamilies) known.append(", ").append(f.name);
    json.wrong("model_type", "one of " + known, name);
  }
  Config config = common(json, *family);
  family->read(json, config);
  json.finish({kConfigPassedOver, kMoreConfigPassedOver});
  check(json, config);
  config.json = std::string(text);
  return config;
}

}  // namespace attn
