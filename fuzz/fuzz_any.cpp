// What io::load() does with a file of any name: the format is found out from the content.
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return attn::fuzz::run(data, size, [](auto bytes) { return attn::io::parse(bytes, "fuzz"); });
}
