#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return attn::fuzz::run(data, size, [](std::span<const std::byte> bytes) {
    return attn::io::parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz");
  });
}
