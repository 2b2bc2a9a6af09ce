// Unicode says this of characters that are put together from others.
#pragma once

#include <string_view>

namespace attn::text {

// Made by scripts/unicode-classes, for numbers_of(). Runs of one combining class, in order: the length and the class.
// And three columns of all characters that are taken apart, one step each, but for Hangul, which is computed: what a
// code adds to the one before · 2 + whether NFC makes it of the two; the first; and the second, or 0 where one
// character stands for another.
std::string_view combining_run_letters();
std::string_view decomposition_letters();

}  // namespace attn::text
