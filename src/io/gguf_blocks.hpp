// The blocks of GGUF's tensors, as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "attn/gguf.hpp"
#include "attn/quantized.hpp"

namespace attn::io {

struct GgufBlock {
  GgufType type;
  std::string_view name;
  std::size_t bytes;
  BlockForm form;                                   // of a quantised one
  void (*take)(const std::byte* block, BlockRun&);  // null where an element stands alone
  void (*widen_one)(const std::byte* block, float*) = nullptr;

  std::int64_t elements() const { return take ? form.shared() : 1; }
  void widen(const std::byte* block, float* out) const;  // one block
};

// Returns the block of a type that the file names by its number; null for one that is not read.
const GgufBlock* gguf_block(std::uint32_t type) noexcept;

// Its name, also of those that are not read; the number of one without a name.
std::string gguf_type_name(std::uint32_t type);

}  // namespace attn::io
