// The blocks of GGUF's tensors, as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attn/gguf.hpp"

namespace attn::io {

struct GgufBlock {
  std::string_view name;
  std::int64_t elements;
  std::size_t bytes;
  void (*widen)(const std::byte* block, float* out);  // one block
};

// Of a type that the file names by its number; null for one that is not read.
const GgufBlock* gguf_block(std::uint32_t type) noexcept;

}  // namespace attn::io
