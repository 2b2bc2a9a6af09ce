// The lists of attn bench --list.

#include "attn/error.hpp"
#include "bench/row.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto rows = attn::tool::parse_rows({reinterpret_cast<const char*>(data), size}, "fuzz");
    attn::tool::filtered(rows, "f32 causal");
  } catch (const attn::Error&) {
  }
  return 0;
}
