// Bytes up to the first zero are a vocab.json; up to the next, a merges.txt; the rest is text.
#include <string_view>

#include "attn/tokenizer.hpp"
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto take = [&rest] {
    const auto part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
    return part;
  };
  try {
    const auto vocab = take(), merges = take();
    const attn::BPETokenizer tokenizer(vocab, merges);
    if (tokenizer.decode(tokenizer.encode(rest)) != rest) __builtin_trap();
  } catch (const attn::Error&) {
  }
  return 0;
}
