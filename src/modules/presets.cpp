// The modules that are one choice of the attention layer's parts.
#include "attn/error.hpp"
#include "attn/modules.hpp"

namespace attn {
namespace {

// The only head, or one of a wrapper's, has d_out numbers and keys of its own.
ModuleConfig one_head(ModuleConfig config, bool causal) {
  if (config.num_heads != 1 || config.kv_heads > 1 || (config.head_dim != 0 && config.head_dim != config.d_out)) {
    throw Error(Error::Kind::argument, "attention module", "one head, without kv_heads or head_dim", "another");
  }
  config.head_dim = 0;
  config.out_proj = false;
  config.causal = config.causal && causal;
  return config;
}

ModuleConfig seed_003_head(ModuleConfig config) {
  if (!config.scale) config.scale = 1;
  if (!config.layer_order) config.layer_order = LayerOrder::kqv;
  return one_head(config, true);
}

ModuleConfig without_mask(ModuleConfig config) {
  config.causal = false;
  if (config.rope) {
    throw Error(Error::Kind::argument, "CrossAttention", "no rope: a distance to another text's tokens means nothing",
                "one");
  }
  return config;
}

}  // namespace

SelfAttentionV2::SelfAttentionV2(ModuleConfig config, Generator& rng) : AttentionLayer(one_head(config, false), rng) {}

SelfAttentionHead::SelfAttentionHead(ModuleConfig config, Generator& rng)
    : AttentionLayer(seed_003_head(config), rng) {}

CausalAttention::CausalAttention(ModuleConfig config, Generator& rng, std::string_view prefix)
    : AttentionLayer(one_head(config, true), rng, prefix) {}

CrossAttention::CrossAttention(ModuleConfig config, Generator& rng) : AttentionLayer(without_mask(config), rng) {}

MultiHeadAttention::MultiHeadAttention(const ModuleConfig& config, Generator& rng) : AttentionLayer(config, rng) {}

}  // namespace attn
