// Unicode says this of characters that are put together from others.
#pragma once

#include <cstdint>
#include <span>

namespace attn::text {

struct Decomposition {
  std::uint32_t code, first, second;  // second is 0 where one character stands for another
  bool joined;                        // whether NFC makes `code` of the two
};

// Made by scripts/unicode-classes. Runs of one combining class, in order: the first code point · 256 + class. And every
// character that is taken apart, by code, one step each; Hangul, which is computed, apart.
std::span<const std::uint32_t> combining_runs();
std::span<const Decomposition> decompositions();

}  // namespace attn::text
