// Steps of tokenizers ask these things of a character.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace attn::text {

// In the order of scripts/unicode-classes. After Unicode's general categories come what patterns call \s, \w and
// \p{Han}, and what steps of the tokenizers package ask in their own way, with older or newer tables of Unicode.
enum class Property : std::uint8_t {
  lu,
  ll,
  lt,
  lm,
  lo,
  mn,
  mc,
  me,
  nd,
  nl,
  no,
  pc,
  pd,
  ps,
  pe,
  pi,
  pf,
  po,
  sm,
  sc,
  sk,
  so,
  zs,
  zl,
  zp,
  cc,
  cf,
  co,
  cn,
  space,
  word,
  han,
  number,        // Digits
  punctuation,   // Punctuation and BertPreTokenizer
  plain_word,    // Whitespace: a piece of these is a word
  bert_control,  // BertNormalizer takes it out of a text
  bert_mark,     // BertNormalizer takes it off a letter
  mark           // StripAccents does
};

using Properties = std::uint64_t;  // 1 << property of each
inline constexpr std::uint32_t kCodes = 0x110000;

constexpr Properties bit(Property property) { return Properties{1} << static_cast<int>(property); }

// Tables that scripts/unicode-classes has made are numbers to base 26: capital letters, and a small one for the last
// digit of each.
std::vector<std::uint32_t> numbers_of(std::string_view letters);

// Made so: the sets of properties that characters have, and runs of characters with the same set, in order, each as its
// length and the set's place; and for each of lowered_runs() what its first adds to the last of the one before, its
// last to its first, its step, and twice what is added, and one where that is below 0.
std::span<const Properties> property_sets();
std::string_view property_run_letters();
std::string_view lowered_letters();

// Runs of a length and a value as they are looked up: each as its first code point · 256 + the value.
std::vector<std::uint32_t> starts_of_runs(std::string_view letters);
std::uint32_t value_in_runs(std::span<const std::uint32_t> starts, std::uint32_t code);
std::span<const std::uint32_t> property_runs();

// Every `step`-th character from first to last (each where it is 0) is lowered by adding a number.
struct Lowered {
  std::uint32_t first, last, step;
  std::int32_t added;
};
std::span<const Lowered> lowered_runs();

Properties properties_of(std::uint32_t code);  // none from kCodes on
inline bool has(std::uint32_t code, Property property) { return (properties_of(code) & bit(property)) != 0; }

// \p{name} asks for any of these properties: "L", "Lu", "Han"; none for a name that is not known.
std::optional<Properties> properties_named(std::string_view name);

}  // namespace attn::text
