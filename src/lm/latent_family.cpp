#include "lm/latent_family.hpp"

#include <cmath>

#include "rotary/config_json.hpp"

namespace attn {
namespace {

using io::JsonObject;

constexpr double kMost = 1e30;

// null is the number that changes nothing.
double number_or(const JsonObject& json, const char* key, double otherwise, double nothing) {
  return json.has(key) && !json.find(key) ? nothing : json.number(key, otherwise, 1e-30, kMost);
}

LatentSizes latent_sizes_of(const JsonObject& json, const LanguageModelConfig& c) {
  LatentSizes s;
  const bool direct = json.has("q_lora_rank") && !json.find("q_lora_rank");
  s.query = direct ? 0 : json.size("q_lora_rank", 768);
  s.latent = json.size("kv_lora_rank", 256);
  s.plain = json.size("qk_nope_head_dim", 64);
  s.rotary = json.size("qk_rope_head_dim", 32);
  s.value = json.size("v_head_dim", c.width / c.heads);
  json.require("head_dim", s.rotary);  // transformers writes both beside the sizes that they follow from
  json.require("qk_head_dim", s.key());
  return s;
}

// YaRN's second factor of the scores (Peng et al. 2023, section 3.4, as DeepSeek-V2 has it).
double yarn_scale(const RopeConfig& rope) {
  if (rope.type == RopeType::standard || rope.mscale_all_dim == 0) return 1;
  const double factor = rope.factor.value_or(1),
               scale = factor <= 1 ? 1 : 0.1 * rope.mscale_all_dim * std::log(factor) + 1;
  return scale * scale;
}

}  // namespace

void read_minicpm3(const JsonObject& json, LanguageModelConfig& c) {
  c.epsilon = json.number("rms_norm_eps", 1e-5, 0, 1);
  c.tied = json.flag("tie_word_embeddings", true);
  c.qkv_bias = c.out_bias = json.flag("attention_bias", false);
  c.feed_forward_bias = json.flag("mlp_bias", false);
  c.kv_heads = json.size("num_key_value_heads", json.has("num_key_value_heads") ? c.heads : 40);
  if (c.kv_heads != c.heads) {
    json.wrong("num_key_value_heads", "num_attention_heads = " + std::to_string(c.heads), c.kv_heads);
  }
  const LatentSizes sizes = latent_sizes_of(json, c);
  RopeConfig rope = rope_config_of(json, {}, 10000);
  rope.head_dim = sizes.rotary;
  c.latent = sizes, c.head_dim = sizes.key(), c.ropes = {rope};
  c.attention_scale = yarn_scale(rope) / std::sqrt(static_cast<double>(sizes.key()));
  const double depth = std::sqrt(static_cast<double>(c.layers.size())), width = static_cast<double>(c.width);
  c.embedding_scale = json.number("scale_emb", 12, -kMost, kMost);
  c.residual_scale = number_or(json, "scale_depth", 1.4, depth) / depth;
  c.logits_scale = number_or(json, "dim_model_base", 256, width) / width;
}

std::vector<std::pair<std::string, Shape>> latent_shapes(const LanguageModelConfig& config) {
  const LatentSizes& s = *config.latent;
  const std::string first = "model.layers.0.self_attn.";
  const std::int64_t from = s.query > 0 ? s.query : config.width;
  return {{first + (s.query > 0 ? "q_b_proj.weight" : "q_proj.weight"), {config.heads * s.key(), from}},
          {first + "kv_a_proj_with_mqa.weight", {s.cached(), config.width}},
          {first + "kv_b_proj.weight", {config.heads * (s.plain + s.value), s.latent}}};
}

}  // namespace attn
