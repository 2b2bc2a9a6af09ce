// A character in the other case, as Python's str has it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace attn::jinja {

std::string upper_of(std::string_view character);
std::string lower_of(std::string_view character);  // but for a capital sigma, whose form depends on its place
std::string title_of(std::string_view character);

// Made by scripts/unicode-cases: characters from `first` to `last` in steps, and what is added to each.
struct CaseRun {
  std::uint32_t first, last, step;
  std::int32_t added;
};
struct CaseText {
  std::uint32_t code;
  std::string_view text;
};
std::span<const CaseRun> upper_runs();
std::span<const CaseRun> lower_runs();
std::span<const CaseText> upper_texts();  // those that become another number of characters
std::span<const CaseText> title_texts();  // those whose title case is not their upper case

}  // namespace attn::jinja
