// A config.json that is taken can be written, and is the same when it is read again; rope parameters that are taken
// give finite frequencies; a language model's parts are of one size.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "attn/pretrained.hpp"
#include "attn/rotary.hpp"
#include "fuzz.hpp"

namespace {

void gpt(std::string_view text) {
  const auto config = attn::parse_gpt_config(text, "fuzz");
  if (!(attn::parse_gpt_config(attn::gpt_config_json(config), "again") == config)) std::abort();
}

void rope(std::string_view text) {
  const auto config = attn::parse_rope_config(text, "full_attention");
  for (const std::int64_t length : {0, 100000}) {
    const auto f = attn::rotary_frequencies(config, length);
    const bool finite = std::ranges::all_of(f.inv_freq, [](float rate) { return std::isfinite(rate); });
    if (!finite || static_cast<std::int64_t>(2 * f.inv_freq.size()) != config.rotary_dim()) std::abort();
  }
}

void language_model(std::string_view text) {
  const auto config = attn::parse_language_model_config(text, "fuzz");
  if (config.family == "gpt2") return;  // nothing turns
  if (config.heads % config.kv_heads != 0 || config.layers.empty()) std::abort();
  for (const attn::LayerConfig& layer : config.layers) {
    if (layer.rope && *layer.rope >= config.ropes.size()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const auto read : {gpt, rope, language_model}) {
    try {
      read({reinterpret_cast<const char*>(data), size});
    } catch (const attn::Error&) {
    }
  }
  return 0;
}
