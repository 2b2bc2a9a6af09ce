// What the library in a page leaves out, and says so where it is asked for it: a page has to be small.
#include "attn/error.hpp"
#include "attn/latent_attention.hpp"
#include "lm/latent_family.hpp"

namespace attn {

void read_minicpm3(const io::JsonObject& json, LanguageModelConfig&) {
  json.wrong("model_type", "a family that runs in a page, which those with latent attention do not", "minicpm3");
}

std::unique_ptr<LatentAttention> make_latent_attention(const ModuleConfig&, const LatentSizes&, Generator&,
                                                       std::string_view) {
  throw Error(Error::Kind::argument, "Block", "keys and values of their own, in a page", "latents");
}

}  // namespace attn
