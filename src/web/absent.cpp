// What the library in a page leaves out, and says so where it is asked for it: a page has to be small.
#include "attn/error.hpp"
#include "attn/latent_attention.hpp"
#include "lm/hybrid_family.hpp"
#include "lm/latent_family.hpp"

namespace attn {
namespace {

[[noreturn]] void absent(const io::JsonObject& json) {
  json.wrong("model_type", "a family that runs in a page, which those with latents or states do not",
             json.text("model_type", ""));
}

}  // namespace

void read_olmo_hybrid(const io::JsonObject& json, LanguageModelConfig&) { absent(json); }
void join_convolutions(std::vector<StoredTensor>&) {}
void read_qwen3_5(const io::JsonObject& json, LanguageModelConfig&) { absent(json); }
void read_minicpm3(const io::JsonObject& json, LanguageModelConfig&) { absent(json); }

std::unique_ptr<LatentAttention> make_latent_attention(const ModuleConfig&, const LatentSizes&, Generator&,
                                                       std::string_view) {
  throw Error(Error::Kind::argument, "Block", "keys and values of their own, in a page", "latents");
}

}  // namespace attn
