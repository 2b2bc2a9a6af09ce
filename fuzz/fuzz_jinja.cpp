// Bytes up to the first zero are a chat template; the rest is a conversation in JSON.
#include "attn/chat.hpp"
#include "bytes.hpp"
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attn::fuzz::Bytes bytes(data, size);
  const std::string_view jinja = bytes.text();
  const auto rest = bytes.rest();
  const std::string_view json(reinterpret_cast<const char*>(rest.data()), rest.size());
  try {
    const auto chat = attn::ChatTemplate::parse(jinja, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const std::vector<attn::ChatMessage> messages{{"system", "s"}, {"user", " {{ u }} "}, {"assistant", "a\n"}};
    try {
      chat.format(messages);
    } catch (const attn::Error&) {
    }
    chat.format(json);
  } catch (const attn::Error&) {
  }
  return 0;
}
