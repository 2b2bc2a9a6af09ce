// Bytes up to the first zero are a tokenizer.json; up to the next, a tokenizer_config.json; the rest is text.
#include "attn/chat.hpp"
#include "attn/tokenizer.hpp"
#include "bytes.hpp"
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attn::fuzz::Bytes bytes(data, size);
  const auto json = bytes.text(), config = bytes.text();
  const auto rest = bytes.rest();
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
  try {
    const attn::BPETokenizer tokenizer = attn::BPETokenizer::parse(json, config);
    const auto ids = tokenizer.encode(text);
    for (const bool skip : {false, true}) {
      attn::DecodeStream stream(tokenizer, {.skip_special_tokens = skip});
      std::string streamed;
      for (const std::int64_t id : ids) streamed += stream.push(id);
      attn::Utf8Stream whole;
      std::string decoded = whole.push(tokenizer.decode(ids, {.skip_special_tokens = skip}));
      if (streamed + stream.finish() != decoded + whole.finish()) __builtin_trap();
    }
    const auto chat = attn::ChatTemplate::of(tokenizer);
    const std::vector<attn::ChatMessage> messages{{"user", std::string(text)}};
    tokenizer.encode(chat.format(messages), {.add_special_tokens = false});
  } catch (const attn::Error&) {
  }
  return 0;
}
