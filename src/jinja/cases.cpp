#include "jinja/cases.hpp"

#include <algorithm>

#include "core/utf8.hpp"

namespace attn::jinja {
namespace {

std::string changed(std::string_view character, std::span<const CaseRun> runs) {
  const std::uint32_t code = first_character(character).code;
  const auto run = std::ranges::lower_bound(runs, code, {}, &CaseRun::last);
  if (run == runs.end() || code < run->first || (code - run->first) % run->step != 0) return std::string(character);
  std::string text;
  append_utf8(text, static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + run->added));
  return text;
}

const CaseText* find(std::span<const CaseText> texts, std::string_view character) {
  const std::uint32_t code = first_character(character).code;
  const auto at = std::ranges::lower_bound(texts, code, {}, &CaseText::code);
  return at != texts.end() && at->code == code ? &*at : nullptr;
}

}  // namespace

std::string upper_of(std::string_view character) {
  const CaseText* own = find(upper_texts(), character);
  return own ? std::string(own->text) : changed(character, upper_runs());
}

std::string lower_of(std::string_view character) {
  return character == "\u0130" ? "i\u0307" : changed(character, lower_runs());
}

std::string title_of(std::string_view character) {
  const CaseText* own = find(title_texts(), character);
  return own ? std::string(own->text) : upper_of(character);
}

}  // namespace attn::jinja
