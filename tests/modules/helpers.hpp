// Helpers of the tests of the modules.
#pragma once

#include "attn/module_kinds.hpp"
#include "core/testing.hpp"

namespace attn::test {

inline Generator seeded(std::uint64_t seed = 123) { return Generator(seed); }

// A module by its class's name.
// Builds the module of that name, by those options of the config that it has.
inline std::unique_ptr<Module> build(const std::string& name, ModuleConfig config, Generator rng) {
  for (const ModuleKind& kind : module_kinds()) {
    if (kind.class_name != name) continue;
    if (!kind.uses.heads) config.num_heads = 1;
    if (!kind.uses.rope && !kind.uses.recurrent) config.rope = {};
    if (!kind.uses.linear && !kind.uses.recurrent) {
      config.context_length = 0, config.dropout = 0, config.qkv_bias = false;
      config.scale = {}, config.layer_order = {};
    }
    return kind.make(config, rng);
  }
  throw std::runtime_error("no module is named " + name);
}

inline Tensor backward(Module& module, const Tensor& dz) { return module.backward(dz).x; }

inline const std::vector<std::string> kTrainable{"SelfAttentionV1",          "SelfAttentionV2", "SelfAttentionHead",
                                                 "CausalAttention",          "CrossAttention",  "MultiHeadAttention",
                                                 "MultiHeadAttentionWrapper"};
inline const std::vector<std::string> kCausal{
    "SelfAttentionHead", "CausalAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper",
    "AveragePast",       "LinearAttention", "DeltaNet",           "GatedDeltaNet",
    "LatentAttention"};
inline const std::vector<std::string> kAll = [] {
  std::vector<std::string> names;
  for (const ModuleKind& kind : module_kinds()) names.emplace_back(kind.class_name);
  return names;
}();

inline Tensor draw(const Shape& shape, std::uint64_t seed = 1) { return Generator(seed).uniform(shape, -1, 1); }

}  // namespace attn::test
