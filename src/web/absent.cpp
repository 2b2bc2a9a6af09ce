// What the library in a page leaves out, and says so where it is asked for it: a page has to be small.
#include "attention/fused.hpp"
#include "attn/error.hpp"
#include "attn/latent_attention.hpp"
#include "experiment/estimates.hpp"
#include "lm/gguf_hybrid.hpp"
#include "lm/hybrid_family.hpp"
#include "lm/hybrid_layer.hpp"
#include "lm/latent_family.hpp"

namespace attn {
namespace {

constexpr const char* kFamily = "a family that runs in a page, which those with latents or states do not";

[[noreturn]] void absent(const io::JsonObject& json) { json.wrong("model_type", kFamily, json.text("model_type", "")); }

}  // namespace

void read_olmo_hybrid(const io::JsonObject& json, LanguageModelConfig&) { absent(json); }
void add_qwen35(io::JsonObject::Json&, const io::GgufMetadata& metadata) { metadata.origin().fail(kFamily, "qwen35"); }
std::int64_t layers_ahead(const io::GgufMetadata&) { return 0; }
std::string_view recurrent_name(std::string_view) { return {}; }
StoredTensor stored_recurrent(const std::shared_ptr<const io::Gguf>&, const io::GgufTensor&, const std::string&,
                              const GatedDeltaConfig&, const std::string&) {
  return {};
}
void join_convolutions(std::vector<StoredTensor>&) {}
void read_qwen3_5(const io::JsonObject& json, LanguageModelConfig&) { absent(json); }
void read_minicpm3(const io::JsonObject& json, LanguageModelConfig&) { absent(json); }
std::vector<std::pair<std::string, Shape>> hybrid_shapes(const LanguageModelConfig&, const std::string&) { return {}; }
std::vector<std::pair<std::string, Shape>> latent_shapes(const LanguageModelConfig&) { return {}; }
std::unique_ptr<RecurrentLayer> make_hybrid_layer(ModuleConfig, const GatedDeltaConfig&, Generator&, const std::string&,
                                                  const RecurrentNames&) {
  return nullptr;
}

// An estimate needs a gradient.
experiment::Estimates experiment::estimated_effects(LanguageModel&, const Tensor&, const EffectOptions&) {
  throw Error(Error::Kind::argument, "experiment", "effects of all heads, in a page", "estimates");
}

// A page shows every step, which the fused kernels do not hold.
bool can_fuse(const Tensor&, const AttentionOptions&) { return false; }
bool can_decode(const Tensor&, const Sizes&, const AttentionOptions&) { return false; }
AttentionResult fused_attention(const Tensor&, const Tensor&, const Tensor&, const Sizes&, const AttentionOptions&,
                                const Tensor&) {
  return {};
}
AttentionResult fused_attention(const Tensor&, const kernels::Pages&, const Sizes&, const AttentionOptions&,
                                const std::function<std::pair<Tensor, Tensor>()>&, const Tensor&) {
  return {};
}
AttentionGradient fused_attention_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Sizes&,
                                           const AttentionOptions&, const AttentionResult&) {
  return {};
}

std::unique_ptr<LatentAttention> make_latent_attention(const ModuleConfig&, const LatentSizes&, Generator&,
                                                       std::string_view) {
  throw Error(Error::Kind::argument, "Block", "keys and values of their own, in a page", "latents");
}

}  // namespace attn
