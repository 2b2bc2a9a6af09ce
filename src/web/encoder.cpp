// Encoders in a page.
#include "attn/encoder.hpp"

#include "attn/gguf.hpp"
#include "io/bytes.hpp"
#include "lm/gguf_encoder.hpp"
#include "web/page.hpp"

namespace attn::web {

std::unique_ptr<Encoder> encoder_in(std::span<const std::byte> bytes, std::string_view config,
                                    std::string_view source) {
  if (!config.empty()) {
    const bool its_own = io::JsonObject(config, io::Origin{"page", "config.json"}).text("model_type", "") == "bert";
    return its_own ? std::make_unique<Encoder>(load_encoder(bytes, config, source)) : nullptr;
  }
  if (!io::as_text(bytes).starts_with("GGUF")) return nullptr;
  const auto file = std::make_shared<const io::Gguf>(io::Gguf::parse(bytes, source));
  if (!is_gguf_encoder(*file)) return nullptr;
  return std::make_unique<Encoder>(encoder_of(open_gguf_encoder(file, source), {kLoadEncoder, source}));
}

}  // namespace attn::web
