#include "text/normalize.hpp"

#include <algorithm>

#include "core/utf8.hpp"
#include "text/classes.hpp"
#include "text/nfc.hpp"

namespace attn::text {
namespace {

// Each character is handed to `change` with the result; bytes that are no UTF-8 stay.
template <class F>
std::string each_character(std::string_view text, const F& change) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_character(text);
    const std::size_t length = c.valid ? c.length : 1;
    if (c.valid) change(result, c.code, text.substr(0, length));
    if (!c.valid) result.push_back(text.front());
    text.remove_prefix(length);
  }
  return result;
}

std::string without(std::string_view text, Property property) {
  return each_character(text, [&](std::string& result, std::uint32_t code, std::string_view bytes) {
    if (!has(code, property)) result.append(bytes);
  });
}

std::string lowered(std::string_view text) {
  constexpr std::uint32_t dotted_i = 0x130;
  return each_character(text, [](std::string& result, std::uint32_t code, std::string_view bytes) {
    if (code == dotted_i) {
      result.append("i\u0307");
      return;
    }
    const auto runs = lowered_runs();
    const auto after = std::ranges::upper_bound(runs, code, {}, &Lowered::first);
    const Lowered* run = after == runs.begin() ? nullptr : &*(after - 1);
    const bool changes = run && code <= run->last && (run->step == 0 || (code - run->first) % run->step == 0);
    if (!changes) result.append(bytes);
    if (changes) append_utf8(result, static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + run->added));
  });
}

std::string cleaned(std::string_view text) {
  return each_character(text, [](std::string& result, std::uint32_t code, std::string_view bytes) {
    if (has(code, Property::bert_control)) return;
    result.append(has(code, Property::space) ? " " : bytes);
  });
}

// The blocks of Unicode that BERT's own tokenizer names.
bool is_ideograph(std::uint32_t code) {
  const auto in = [&](std::uint32_t first, std::uint32_t last) { return code >= first && code <= last; };
  return in(0x3400, 0x4dbf) || in(0x4e00, 0x9fff) || in(0xf900, 0xfaff) || in(0x20000, 0x2a6df) ||
         in(0x2a700, 0x2b81f) || in(0x2b920, 0x2ceaf) || in(0x2f800, 0x2fa1f);
}

std::string with_ideographs_apart(std::string_view text) {
  return each_character(text, [](std::string& result, std::uint32_t code, std::string_view bytes) {
    const std::string_view blank = is_ideograph(code) ? " " : "";
    result.append(blank).append(bytes).append(blank);
  });
}

std::string without_extra_blanks(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ' || !(result.empty() || result.back() == ' ')) result.push_back(c);
  }
  constexpr std::string_view written = "\u2581";  // what SentencePiece writes for a blank goes from the end, too
  std::string_view kept = result;
  while (kept.ends_with(' ') || kept.ends_with(written)) kept.remove_suffix(kept.ends_with(' ') ? 1 : written.size());
  return std::string(kept);
}

std::string stripped(std::string_view text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0, at = 0;
  while (at < text.size()) {
    const Character c = first_character(text.substr(at));
    const std::size_t length = c.valid ? c.length : 1;
    if (!c.valid || !has(c.code, Property::space)) begin = std::min(begin, at), end = at + length;
    at += length;
  }
  const std::size_t from = left ? begin : 0, to = right ? end : text.size();
  return std::string(text.substr(from, to > from ? to - from : 0));
}

std::string replaced(std::string_view text, const Normalizer& step) {
  Memory memory;
  Search search(*step.pattern, text, memory);
  std::string result;
  std::size_t done = 0;
  while (const auto found = search.next()) {
    result.append(text.substr(done, found->begin - done)).append(step.to);
    done = found->end;
  }
  return result.append(text.substr(done));
}

std::string changed_by(const Normalizer& step, const std::string& text) {
  switch (step.kind) {
    case Normalizer::Kind::nfc:
      return nfc(text);
    case Normalizer::Kind::nfd:
      return nfd(text);
    case Normalizer::Kind::lowercase:
      return lowered(text);
    case Normalizer::Kind::strip_accents:
      return without(text, Property::mark);
    case Normalizer::Kind::prepend:
      return text.empty() ? text : step.to + text;
    case Normalizer::Kind::replace:
      return replaced(text, step);
    case Normalizer::Kind::extra_blanks:
      return without_extra_blanks(text);
    case Normalizer::Kind::strip:
      return stripped(text, step.left, step.right);
    case Normalizer::Kind::clean:
      return cleaned(text);
    case Normalizer::Kind::ideographs:
      return with_ideographs_apart(text);
    case Normalizer::Kind::bert_marks:
      return without(nfd(text), Property::bert_mark);
  }
  return text;
}

}  // namespace

std::string replaced_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

std::string normalized(std::string_view text, std::span<const Normalizer> steps) {
  std::string result(text);
  for (const Normalizer& step : steps) result = changed_by(step, result);
  return result;
}

}  // namespace attn::text
