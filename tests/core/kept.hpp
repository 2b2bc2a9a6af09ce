// Golden files hold 128 numbers of a large result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attn/tensor.hpp"

namespace attn::test {

// Returns what `expected` is compared with: `found`, or of its many numbers those that golden/kept.py's kept() chose.
inline Tensor kept(const Tensor& found, const Tensor& expected) {
  constexpr std::int64_t count = 128;
  if (!found.defined() || found.numel() <= 2 * count || expected.shape() != Shape{count}) return found;
  const Tensor flat = found.contiguous().view({-1}), some = Tensor::empty({count}, found.dtype());
  const std::size_t size = size_of(found.dtype());
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t at = (i * 2654435769u * static_cast<std::uint64_t>(flat.numel())) >> 32;  // by the golden ratio
    std::memcpy(static_cast<std::byte*>(some.raw()) + i * size, static_cast<std::byte*>(flat.raw()) + at * size, size);
  }
  return some;
}

}  // namespace attn::test
