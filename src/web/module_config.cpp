// Reads what a page says of a module of the book.
#include "attn/module_kinds.hpp"
#include "io/json_object.hpp"
#include "web/page.hpp"

namespace attn::web {
namespace {

RotaryFrequencies turns(const io::JsonObject& json) {
  RotaryFrequencies rope;
  if (!json.find("invFreq") || !json.find("invFreq")->is_array()) json.wrong("invFreq", "a list", json.json());
  for (const auto& rate : *json.find("invFreq")) {
    if (!rate.is_number()) json.wrong("invFreq", "numbers", rate);
    rope.inv_freq.push_back(rate.get<float>());
  }
  rope.attention_factor = json.number("factor", 1, -1e30, 1e30);
  if (json.flag("interleaved", false)) rope.layout = RotaryLayout::interleaved;
  return rope;
}

LatentSizes latent_sizes(const io::JsonObject& json) {
  return {.query = place(json, "query"),
          .latent = place(json, "latent"),
          .plain = place(json, "plain"),
          .rotary = place(json, "rotary"),
          .value = place(json, "value")};
}

}  // namespace

std::int64_t place(const io::JsonObject& json, const char* key) {
  return static_cast<std::int64_t>(json.number(key, 0, 0, 0x1p53));
}

ModuleConfig module_config(const io::JsonObject& json) {
  ModuleConfig c;
  c.d_in = json.size("d_in", 0), c.d_out = json.size("d_out", 0);
  c.num_heads = json.size("num_heads", 1), c.kv_heads = json.size("kv_heads", 0), c.head_dim = json.size("head_dim", 0);
  c.window = place(json, "window"), c.context_length = place(json, "context_length");
  c.qkv_bias = json.flag("qkv_bias", c.qkv_bias), c.out_bias = json.flag("out_bias", c.out_bias);
  c.out_proj = json.flag("out_proj", c.out_proj), c.causal = json.flag("causal", c.causal);
  c.softcap = json.number("softcap", 0, 0, 1e30), c.dropout = json.number("dropout", 0, 0, 1);
  if (json.find("scale")) c.scale = json.number("scale", 1, -1e30, 1e30);
  if (const auto* latents = json.find("latents")) c.latents = latent_sizes(io::JsonObject(*latents, json.origin()));
  if (const auto* rope = json.find("rope")) c.rope = turns(io::JsonObject(*rope, json.origin()));
  return c;
}

}  // namespace attn::web
