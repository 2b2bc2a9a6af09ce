// A config.json that is taken can be written, and is the same when it is read again.
#include <cstdlib>
#include <string_view>

#include "attn/checkpoint.hpp"
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto config = attn::parse_gpt_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!(attn::parse_gpt_config(attn::gpt_config_json(config), "again") == config)) std::abort();
  } catch (const attn::Error&) {
  }
  return 0;
}
