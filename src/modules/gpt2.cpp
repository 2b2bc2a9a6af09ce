#include <array>
#include <string>

#include "attn/error.hpp"
#include "attn/modules.hpp"

namespace attn {

ModuleConfig gpt2_attention(std::string_view size) {
  struct Size {
    std::string_view name;
    std::int64_t d, heads;
  };
  constexpr std::array<Size, 4> sizes{{{"117M", 768, 12}, {"345M", 1024, 16}, {"762M", 1280, 20}, {"1.5B", 1600, 25}}};
  for (const Size& s : sizes) {
    if (s.name != size) continue;
    ModuleConfig config;
    config.d_in = config.d_out = s.d;
    config.num_heads = s.heads;
    config.context_length = 1024;
    config.dropout = 0.1;
    config.qkv_bias = true;
    return config;
  }
  throw Error(Error::Kind::argument, "gpt2_attention", "117M, 345M, 762M or 1.5B", size);
}

}  // namespace attn
