// Fuzzes what io::load() does with a file of any name: it finds out the format from the content.
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return attn::fuzz::run(data, size, [](auto bytes) { return attn::io::parse(bytes, "fuzz"); });
}
