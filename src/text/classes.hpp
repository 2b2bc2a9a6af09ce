// What GPT-2's pattern asks of a character.
#pragma once

#include <cstdint>
#include <span>

namespace attn::text {

enum class Class : std::uint8_t { other, letter, number, space };  // \p{L}, \p{N}, \s

// Made by scripts/unicode-classes: runs of one class, in order; each is its first code point · 4 + class.
std::span<const std::uint32_t> class_runs();

Class class_of(std::uint32_t code);

}  // namespace attn::text
