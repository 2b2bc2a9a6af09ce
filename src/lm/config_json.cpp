// A config as the config.json of its family: what families.cpp reads.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "attn/error.hpp"
#include "attn/pretrained.hpp"
#include "core/known.hpp"

namespace attn {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr const char* kConfigJson = "config_json";

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu_tanh:
      return "gelu_pytorch_tanh";
    case Activation::sigmoid:
      return "sigmoid";
    case Activation::gelu:
      break;
  }
  return "gelu";
}

Ordered rope_json(const RopeConfig& rope) {
  require_known(kConfigJson, "a rope's type", rope.type, RopeType::longrope);
  constexpr const char* kTypes[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
  Ordered json{{"rope_type", kTypes[static_cast<int>(rope.type)]}, {"rope_theta", rope.theta}};
  if (rope.partial_rotary_factor != 1) json["partial_rotary_factor"] = rope.partial_rotary_factor;
  if (rope.type == RopeType::standard) return json;
  if (rope.original_max_position_embeddings > 0) {
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  if (rope.factor) json["factor"] = *rope.factor;
  if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  if (rope.type == RopeType::yarn) {
    json["beta_fast"] = rope.beta_fast, json["beta_slow"] = rope.beta_slow;
    json["mscale"] = rope.mscale, json["mscale_all_dim"] = rope.mscale_all_dim;
    json["truncate"] = rope.truncate;
  }
  if (rope.type == RopeType::llama3) {
    json["low_freq_factor"] = rope.low_freq_factor, json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type == RopeType::longrope) {
    json["short_factor"] = rope.short_factor, json["long_factor"] = rope.long_factor;
  }
  return json;
}

// Layers with a window and others, and which of them turn by which parameters.
void add_layers(Ordered& json, const LanguageModelConfig& c) {
  const auto slides = [](const LayerConfig& layer) { return layer.window > 0; };
  const auto window = std::ranges::find_if(c.layers, slides);
  const bool some = window != c.layers.end(), all = std::ranges::all_of(c.layers, slides);
  if (some || c.family == "mistral") json["sliding_window"] = some ? Ordered(window->window) : Ordered(nullptr);
  if (some && (c.family.starts_with("qwen") || c.family == "smollm3")) json["use_sliding_window"] = true;
  if (some && !(all && (c.family == "mistral" || c.family == "phi3"))) {
    for (const LayerConfig& layer : c.layers) {
      json["layer_types"].push_back(slides(layer) ? "sliding_attention" : "full_attention");
    }
  }
  if (c.ropes.size() == 1) json["rope_parameters"] = rope_json(c.ropes[0]);
  if (c.ropes.size() == 2) {
    json["rope_parameters"] = {{"full_attention", rope_json(c.ropes[0])}, {"sliding_attention", rope_json(c.ropes[1])}};
  }
  if (c.family == "smollm3") {
    for (const LayerConfig& layer : c.layers) json["no_rope_layers"].push_back(layer.rope ? 1 : 0);
  }
}

void add_gemma(Ordered& json, const LanguageModelConfig& c) {
  json["hidden_activation"] = name_of(c.activation);
  if (c.attention_scale) json["query_pre_attn_scalar"] = 1 / (*c.attention_scale * *c.attention_scale);
  const auto cap = [](double value) { return value > 0 ? Ordered(value) : Ordered(nullptr); };
  json["attn_logit_softcapping"] = cap(c.attention_softcap);
  json["final_logit_softcapping"] = cap(c.logits_softcap);
}

void add_granite(Ordered& json, const LanguageModelConfig& c) {
  json["embedding_multiplier"] = c.embedding_scale;
  json["residual_multiplier"] = c.residual_scale;
  json["attention_multiplier"] = c.attention_scale.value_or(1 / std::sqrt(static_cast<double>(c.head_dim)));
  json["logits_scaling"] = 1 / c.logits_scale;
}

void add_minicpm3(Ordered& json, const LanguageModelConfig& c) {
  const LatentSizes s = c.latent.value_or(LatentSizes{});
  json["q_lora_rank"] = s.query > 0 ? Ordered(s.query) : Ordered(nullptr);
  json["kv_lora_rank"] = s.latent;
  json["qk_nope_head_dim"] = s.plain, json["qk_rope_head_dim"] = json["head_dim"] = s.rotary;
  json["v_head_dim"] = s.value;
  json["scale_emb"] = c.embedding_scale;
  json["scale_depth"] = c.residual_scale * std::sqrt(static_cast<double>(c.layers.size()));
  json["dim_model_base"] = c.logits_scale * static_cast<double>(c.width);
}

// The sizes of gated delta rules, and which layers have them.
void add_hybrid(Ordered& json, const LanguageModelConfig& c) {
  const GatedDeltaConfig s = c.gated_delta.value_or(GatedDeltaConfig{});
  json["linear_num_key_heads"] = s.key_heads, json["linear_num_value_heads"] = s.value_heads;
  json["linear_key_head_dim"] = s.key_dim, json["linear_value_head_dim"] = s.value_dim;
  json["linear_conv_kernel_dim"] = s.convolution;
  if (c.family == "olmo_hybrid") json["linear_allow_neg_eigval"] = s.doubled_beta;
  for (const LayerConfig& layer : c.layers)
    json["layer_types"].push_back(layer.mixer == Mixer::softmax ? "full_attention" : "linear_attention");
  if (c.family == "qwen3_5_text" && c.ropes.size() == 1)  // whose default is another
    json["rope_parameters"]["partial_rotary_factor"] = c.ropes[0].partial_rotary_factor;
  if (c.ropes.empty()) json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", nullptr}};
}

Ordered json_of(const LanguageModelConfig& c) {
  Ordered json{{"model_type", c.family},
               {"vocab_size", c.vocab_size},
               {"hidden_size", c.width},
               {"intermediate_size", c.inner_width},
               {"num_hidden_layers", c.layers.size()},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"max_position_embeddings", c.context_length},
               {"rms_norm_eps", c.epsilon},
               {"tie_word_embeddings", c.tied},
               {"eos_token_id", c.end_ids},
               {"pad_token_id", nullptr}};  // transformers' own may lie beyond a small vocabulary
  const bool gemma = c.family.starts_with("gemma");
  if (!gemma) json["hidden_act"] = name_of(c.activation);
  if (c.out_bias) json["attention_bias"] = true;
  if (c.feed_forward_bias) json["mlp_bias"] = true;
  add_layers(json, c);
  if (gemma) add_gemma(json, c);
  if (c.family == "granite") add_granite(json, c);
  if (c.family == "phi3" && !c.ropes.empty())  // beside the parameters, whose own does not count
    json["original_max_position_embeddings"] = c.ropes[0].original_max_position_embeddings;
  if (c.family == "minicpm3") add_minicpm3(json, c);
  if (c.gated_delta) add_hybrid(json, c);
  return json;
}

// Numbers for those that 0 stands for, and without what config.json does not say.
LanguageModelConfig plain(LanguageModelConfig c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = c.width / c.heads;
  for (RopeConfig& rope : c.ropes) {
    if (rope.head_dim == 0) rope.head_dim = c.head_dim;
    if (rope.max_position_embeddings == 0) rope.max_position_embeddings = c.context_length;
    if (rope.original_max_position_embeddings == 0)
      rope.original_max_position_embeddings = rope.max_position_embeddings;
  }
  c.json.clear();
  c.precision = Precision::highest;
  return c;
}

bool near(double a, double b) { return std::fabs(a - b) <= 1e-12 * std::fabs(b); }

// 1/√(1/s²) is s, up to its last bit, and (s · √n) / √n.
bool same(LanguageModelConfig a, const LanguageModelConfig& b) {
  if (a.attention_scale && b.attention_scale && near(*a.attention_scale, *b.attention_scale)) {
    a.attention_scale = b.attention_scale;
  }
  if (near(a.residual_scale, b.residual_scale)) a.residual_scale = b.residual_scale;
  if (near(a.logits_scale, b.logits_scale)) a.logits_scale = b.logits_scale;
  return a == b;
}

}  // namespace

std::string config_json(const LanguageModelConfig& config) {
  if (config.family == "gpt2") {
    const GPTConfig gpt = gpt_config(config);
    const bool all = plain(language_model_config(gpt)) == plain(config) || !config.end_ids.empty();
    if (all) return gpt_config_json(gpt);
  } else {
    const LanguageModelConfig wanted = plain(config);
    const std::string text = json_of(wanted).dump(2) + "\n";
    if (same(plain(parse_language_model_config(text)), wanted)) return text;
  }
  throw Error(Error::Kind::argument, kConfigJson, "a config that the family " + config.family + " can have", "another",
              "choose the family whose parts these are");
}

}  // namespace attn
