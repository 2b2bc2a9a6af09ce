#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return attn::fuzz::run(data, size, [](auto bytes) { return attn::io::parse_npz(bytes, "fuzz"); });
}
