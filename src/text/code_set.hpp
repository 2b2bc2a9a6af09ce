// Sets of characters, as patterns have them.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/classes.hpp"

namespace attn::text {

// A byte that is no UTF-8 is a character of its own behind all others. It has no property, but lies in complements.
inline constexpr std::uint32_t kCodesAndBytes = kCodes + 256;

using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // [first, end), in order, apart from each other

Ranges united(const Ranges& a, const Ranges& b);
Ranges complement(const Ranges& ranges);
Ranges common(const Ranges& a, const Ranges& b);
Ranges ranges_of(Properties any);

// A set that is asked often: a bit for each character, in blocks that are kept once.
class CodeSet {
 public:
  explicit CodeSet(const Ranges& ranges);

  bool contains(std::uint32_t code) const {
    const std::uint64_t word = blocks_[index_[code / 256]][code / 64 % 4];
    return (word >> (code % 64) & 1) != 0;
  }

 private:
  using Block = std::array<std::uint64_t, 4>;
  std::array<std::uint16_t, kCodesAndBytes / 256> index_{};
  std::vector<Block> blocks_;
};

}  // namespace attn::text
