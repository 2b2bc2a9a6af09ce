// Unicode says this of characters that are put together from others.
#pragma once

#include <cstdint>
#include <span>

namespace attn::text {

// Made by scripts/unicode-classes. Runs of one combining class, in order: the length · 256 + the class. And three
// columns of all characters that are taken apart, one step each, but for Hangul, which is computed: what a code adds to
// the one before · 2 + whether NFC makes it of the two; the first; and the second, or 0 where one character stands for
// another.
std::span<const std::uint32_t> combining_run_lengths();
std::span<const std::uint32_t> decomposition_numbers();

}  // namespace attn::text
