// What the tests of the modules share.
#pragma once

#include "attn/modules.hpp"
#include "core/testing.hpp"

namespace attn::test {

inline Generator seeded(std::uint64_t seed = 123) { return Generator(seed); }

// Every module that attends by projections, by name.
inline std::unique_ptr<Module> build(const std::string& name, const ModuleConfig& config, Generator rng) {
  if (name == "SelfAttentionV1") return std::make_unique<SelfAttentionV1>(config.d_in, config.d_out, rng);
  if (name == "SelfAttentionV2") return std::make_unique<SelfAttentionV2>(config, rng);
  if (name == "SelfAttentionHead") return std::make_unique<SelfAttentionHead>(config, rng);
  if (name == "CausalAttention") return std::make_unique<CausalAttention>(config, rng);
  if (name == "CrossAttention") return std::make_unique<CrossAttention>(config, rng);
  if (name == "MultiHeadAttention") return std::make_unique<MultiHeadAttention>(config, rng);
  if (name == "MultiHeadAttentionWrapper") return std::make_unique<MultiHeadAttentionWrapper>(config, rng);
  if (name == "SimplifiedSelfAttention") return std::make_unique<SimplifiedSelfAttention>();
  if (name == "AveragePast") return std::make_unique<AveragePast>();
  throw std::runtime_error("no module is named " + name);
}

inline Tensor backward(Module& module, const Tensor& dz) {
  if (auto* m = dynamic_cast<SelfAttentionV1*>(&module)) return m->backward(dz);
  if (auto* m = dynamic_cast<MultiHeadAttentionWrapper*>(&module)) return m->backward(dz);
  return dynamic_cast<ProjectedAttention&>(module).backward(dz).x;
}

inline const std::vector<std::string> kTrainable{"SelfAttentionV1",          "SelfAttentionV2", "SelfAttentionHead",
                                                 "CausalAttention",          "CrossAttention",  "MultiHeadAttention",
                                                 "MultiHeadAttentionWrapper"};
inline const std::vector<std::string> kCausal{"SelfAttentionHead", "CausalAttention", "MultiHeadAttention",
                                              "MultiHeadAttentionWrapper", "AveragePast"};
inline const std::vector<std::string> kAll{
    "SimplifiedSelfAttention", "AveragePast",    "SelfAttentionV1",    "SelfAttentionV2",          "CausalAttention",
    "SelfAttentionHead",       "CrossAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper"};

inline Tensor draw(const Shape& shape, std::uint64_t seed = 1) { return Generator(seed).uniform(shape, -1, 1); }

}  // namespace attn::test
