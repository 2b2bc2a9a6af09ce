#include "train/lacking.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/format.hpp"
#include "core/escape.hpp"
#include "core/utf8.hpp"
#include "text/classes.hpp"

namespace attn::tool {
namespace {

// A character by itself is lacked where it becomes the unknown token, or nothing that can be seen. Blanks may become
// nothing in order.
bool lacks(const Tokenizer& tokenizer, const std::string& character) {
  const auto ids = tokenizer.encode(character, {.add_special_tokens = false});
  if (const auto unknown = tokenizer.unknown_id(); unknown && std::ranges::count(ids, *unknown) > 0) return true;
  const Character c = first_character(character);
  if (c.valid && (c.code < ' ' || text::has(c.code, text::Property::space))) return false;
  const std::string back = tokenizer.decode(ids);
  return std::ranges::all_of(back, [](char byte) { return byte == ' '; });
}

}  // namespace

void count_characters(std::string_view text, Characters& counts) {
  while (!text.empty()) {
    const std::size_t length = first_character(text).length;
    ++counts[std::string(text.substr(0, length))];
    text.remove_prefix(length);
  }
}

std::string lacking_text(const Characters& counts, const Tokenizer& tokenizer) {
  std::vector<std::pair<std::int64_t, std::string>> lacked;
  std::int64_t all = 0, found = 0;
  for (const auto& [character, count] : counts) {
    all += count;
    if (!lacks(tokenizer, character)) continue;
    found += count;
    lacked.emplace_back(count, character);
  }
  if (lacked.empty()) return {};
  std::ranges::stable_sort(lacked, std::ranges::greater{}, [](const auto& one) { return one.first; });
  constexpr std::size_t shown = 5;
  std::string some;
  for (std::size_t i = 0; i < std::min(shown, lacked.size()); ++i) {
    some += formatted("{}'{}' ({})", i == 0 ? "" : ", ", escaped(lacked[i].second), lacked[i].first);
  }
  return formatted("the tokenizer has no token for {} of {} characters: {}{}; the model cannot learn them\n", found,
                   all, some, lacked.size() > shown ? formatted(" and {} more kinds", lacked.size() - shown) : "");
}

}  // namespace attn::tool
