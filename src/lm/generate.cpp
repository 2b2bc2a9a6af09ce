#include "attn/generate.hpp"

#include <algorithm>
#include <string>

#include "attn/error.hpp"

namespace attn {

void require_valid(const GenerateOptions& options) {
  if (options.tokens < 0) {
    throw Error(Error::Kind::argument, "generate", "tokens of at least 0", std::to_string(options.tokens));
  }
  require_valid(options.sampling);
}

std::vector<std::int64_t> generate(GPT& model, std::span<const std::int64_t> prompt, const GenerateOptions& options,
                                   Generator& rng, const std::function<bool(std::int64_t)>& each) {
  if (prompt.empty()) throw Error(Error::Kind::argument, "generate", "a prompt of at least one token", "none");
  require_valid(options);
  const std::int64_t context = model.config().context_length, half = std::max<std::int64_t>(1, context / 2);
  Decoder decoder(model, 1, options.cache, options.make_cache);
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  auto unread = static_cast<std::int64_t>(text.size());
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (decoder.length() + unread > context) {
      decoder.truncate(0);
      unread = std::min(half, static_cast<std::int64_t>(text.size()));
    }
    const Tensor logits = decoder.read(std::span(text).last(static_cast<std::size_t>(unread)));
    const std::int64_t next = next_token(logits, options, rng, text);
    if (std::ranges::find(options.stops, next) != options.stops.end()) break;
    text.push_back(next);
    unread = 1;
    if (each && !each(next)) break;
  }
  text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  return text;
}

}  // namespace attn
