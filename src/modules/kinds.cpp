// The list of modules.
#include <algorithm>
#include <array>
#include <concepts>
#include <string>

#include "attn/error.hpp"
#include "attn/latent_attention.hpp"
#include "attn/module_kinds.hpp"
#include "attn/recurrent_modules.hpp"

namespace attn {
namespace {

// The simplest modules take only the sizes of a config: these other options would be dropped without a word.
void require_plain(const ModuleConfig& c) {
  const bool others = c.context_length != 0 || c.dropout != 0 || c.num_heads != 1 || c.qkv_bias || c.window != 0 ||
                      c.softcap != 0 || c.sinks || c.output_gate || c.kv_heads != 0 || c.head_dim != 0 || c.scale ||
                      c.layer_order || c.rope || c.query_key_norm != QueryKeyNorm::none || c.latents != LatentSizes{};
  if (others) throw Error(Error::Kind::argument, "module", "d_in and d_out alone", "another option");
}

template <class M>
std::unique_ptr<Module> make(const ModuleConfig& config, Generator& rng) {
  if constexpr (std::constructible_from<M, const ModuleConfig&, Generator&>) {
    return std::make_unique<M>(config, rng);
  } else {
    require_plain(config);
    if constexpr (std::default_initializable<M>) {
      return std::make_unique<M>();
    } else {
      return std::make_unique<M>(config.d_in, config.d_out, rng);
    }
  }
}

// Its output has a bias where its inputs have one, as `attention_bias` says it of Hugging Face's.
std::unique_ptr<Module> make_latent(const ModuleConfig& config, Generator& rng) {
  ModuleConfig c = config;
  c.out_bias = c.qkv_bias;
  return make_latent_attention(c, c.latents, rng, {});
}

constexpr ModuleUses kLinear{.weights = true, .linear = true, .rope = true};
constexpr ModuleUses kCausal{.weights = true, .linear = true, .mask = true, .rope = true};

constexpr ModuleUses kRecurrent{.weights = true, .heads = true, .out_proj = true, .recurrent = true};

constexpr std::array kKinds{
    ModuleKind{
        "simple", "SimplifiedSelfAttention", "softmax(x · xᵀ) · x, no weights", {}, make<SimplifiedSelfAttention>},
    ModuleKind{"average", "AveragePast", "row i is the mean of rows 1 to i", {}, make<AveragePast>},
    ModuleKind{
        "self-v1", "SelfAttentionV1", "weights from rand, used as x · W", {.weights = true}, make<SelfAttentionV1>},
    ModuleKind{"self-v2", "SelfAttentionV2", "weights from Linear, no mask", kLinear, make<SelfAttentionV2>},
    ModuleKind{"head", "SelfAttentionHead", "one causal head, not scaled", kCausal, make<SelfAttentionHead>},
    ModuleKind{"causal", "CausalAttention", "one causal head with dropout", kCausal, make<CausalAttention>},
    ModuleKind{"heads",
               "MultiHeadAttentionWrapper",
               "causal heads one after the other, joined",
               {.weights = true, .linear = true, .mask = true, .rope = true, .heads = true},
               make<MultiHeadAttentionWrapper>},
    ModuleKind{"multihead",
               "MultiHeadAttention",
               "one projection split into heads, out_proj",
               {.weights = true, .linear = true, .mask = true, .rope = true, .heads = true, .out_proj = true},
               make<MultiHeadAttention>},
    ModuleKind{"cross",
               "CrossAttention",
               "queries from x, keys, values from --context",
               {.weights = true, .linear = true, .heads = true, .out_proj = true, .source = true},
               make<CrossAttention>},
    ModuleKind{"linear", "LinearAttention", "a state, read by φ(q), φ = elu + 1", kRecurrent, make<LinearAttention>},
    ModuleKind{"delta", "DeltaNet", "a state that keys overwrite", kRecurrent, make<DeltaNet>},
    ModuleKind{"gated-delta", "GatedDeltaNet", "the same, and it fades", kRecurrent, make<GatedDeltaNet>},
    ModuleKind{"latent",
               "LatentAttention",
               "keys, values of all heads from one latent",
               {.weights = true, .linear = true, .mask = true, .rope = true, .heads = true, .latent = true},
               make_latent},
};

}  // namespace

std::span<const ModuleKind> module_kinds() noexcept { return kKinds; }

const ModuleKind* find_module_kind(std::string_view name) noexcept {
  const auto at = std::ranges::find(kKinds, name, &ModuleKind::name);
  return at == kKinds.end() ? nullptr : &*at;
}

const ModuleKind& module_kind(std::string_view name) {
  if (const ModuleKind* kind = find_module_kind(name)) return *kind;
  std::string names;
  for (const ModuleKind& kind : kKinds) names.append(names.empty() ? "" : ", ").append(kind.name);
  throw Error(Error::Kind::argument, "module", "a module among: " + names, name);
}

}  // namespace attn
