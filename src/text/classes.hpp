// What split patterns ask of a character.
#pragma once

#include <cstdint>
#include <span>

namespace attn::text {

// \p{L}, \p{N}, \s; a digit is what a newer version of Unicode calls a number, which Digits knows and patterns do not.
enum class Class : std::uint8_t { other, letter, number, space, digit };

// Made by scripts/unicode-classes: runs of one class, in order; each is its first code point · 8 + class.
std::span<const std::uint32_t> class_runs();

Class class_of(std::uint32_t code);

}  // namespace attn::text
