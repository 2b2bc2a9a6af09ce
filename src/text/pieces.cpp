// The patterns as a walk over the characters; each step takes the first alternative that fits.
#include "text/pieces.hpp"

#include <algorithm>
#include <array>

#include "attn/tokenizer.hpp"
#include "core/utf8.hpp"
#include "text/classes.hpp"

namespace attn {
namespace text {

Class class_of(std::uint32_t code) {
  static const auto ascii = [] {
    std::array<Class, 128> table{};
    const auto runs = class_runs();
    std::size_t run = 0;
    for (std::uint32_t c = 0; c < table.size(); ++c) {
      if (run + 1 < runs.size() && runs[run + 1] / 8 == c) ++run;
      table[c] = static_cast<Class>(runs[run] % 8);
    }
    return table;
  }();
  if (code < ascii.size()) return ascii[code];
  const auto runs = class_runs();
  const auto after = std::upper_bound(runs.begin(), runs.end(), code * 8 + 7);
  return static_cast<Class>(*(after - 1) % 8);
}

namespace {

constexpr std::array kPatterns{
    Pattern{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", false, false, 0, false},
    Pattern{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
            R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
            true, true, 3, true},
    Pattern{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
            R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
            true, true, 1, true},
};

struct Step {
  Class kind;  // as patterns see it
  std::size_t length;
};

Step step_at(std::string_view text) {
  const Character c = first_character(text);
  if (!c.valid) return {Class::other, 1};
  const Class kind = class_of(c.code);
  return {kind == Class::digit ? Class::other : kind, c.length};
}

bool ends_line(char c) { return c == '\r' || c == '\n'; }

// `text` begins with `word`, which is of small letters. The long s is an s whose capital is S.
std::size_t word_at(std::string_view text, std::string_view word, bool any_case) {
  constexpr std::string_view long_s = "\u017f";
  std::size_t at = 0;
  for (const char letter : word) {
    const std::string_view rest = text.substr(at);
    if (any_case && letter == 's' && rest.starts_with(long_s)) {
      at += long_s.size();
    } else if (rest.starts_with(letter) || (any_case && rest.starts_with(static_cast<char>(letter - 'a' + 'A')))) {
      ++at;
    } else {
      return 0;
    }
  }
  return at;
}

// 's|'t|'re|'ve|'m|'ll|'d
std::size_t contraction(std::string_view text, bool any_case) {
  if (text.front() != '\'') return 0;
  for (const std::string_view end : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (const std::size_t length = word_at(text.substr(1), end, any_case)) return 1 + length;
  }
  return 0;
}

// Where the run of `kind` that goes on at `at` ends, after `most` characters at the latest.
std::size_t run_end(std::string_view text, std::size_t at, Class kind, std::size_t most = std::string_view::npos) {
  for (std::size_t count = 0; at < text.size() && count < most; ++count) {
    const Step next = step_at(text.substr(at));
    if (next.kind != kind) break;
    at += next.length;
  }
  return at;
}

// \s*[\r\n]+ where line ends count, else \s+(?!\S)|\s+: all of the run but its last character, if that leaves any and
// something follows.
std::size_t spaces(std::string_view text, bool line_ends) {
  std::size_t end = 0, before_last = 0, after_line = 0;
  while (end < text.size()) {
    const Step next = step_at(text.substr(end));
    if (next.kind != Class::space) break;
    before_last = end;
    end += next.length;
    if (ends_line(text[before_last])) after_line = end;
  }
  if (line_ends && after_line > 0) return after_line;
  return end < text.size() && before_last > 0 ? before_last : end;
}

//  ?[^\s\p{L}\p{N}]+ and, where line ends count, [\r\n]*
std::size_t signs(std::string_view text, std::size_t at, bool line_ends) {
  at = run_end(text, at, Class::other);
  while (line_ends && at < text.size() && ends_line(text[at])) ++at;
  return at;
}

}  // namespace

const Pattern& gpt2_pattern() { return kPatterns[0]; }
const Pattern& llama3_pattern() { return kPatterns[1]; }
const Pattern& qwen_pattern() { return kPatterns[2]; }

const Pattern* find_pattern(std::string_view written) {
  const auto* at = std::ranges::find(kPatterns, written, &Pattern::written);
  return at == kPatterns.end() ? nullptr : at;
}

std::size_t piece_length(std::string_view text, const Pattern& pattern) {
  if (const std::size_t length = contraction(text, pattern.any_case)) return length;
  const Step first = step_at(text);
  if (first.kind == Class::letter) return run_end(text, first.length, Class::letter);
  const bool blank = text.front() == ' ';
  const Step second = first.length < text.size() ? step_at(text.substr(first.length)) : Step{Class::space, 0};
  if (second.kind == Class::letter && first.kind != Class::number &&
      (pattern.any_lead ? !ends_line(text.front()) : blank)) {
    return run_end(text, first.length, Class::letter);
  }
  if (first.kind == Class::number)
    return run_end(text, 0, Class::number, pattern.digits == 0 ? text.size() : pattern.digits);
  if (second.kind == Class::number && blank && pattern.digits == 0) return run_end(text, 1, Class::number);
  if (first.kind == Class::other) return signs(text, 0, pattern.line_ends);
  if (second.kind == Class::other && blank) return signs(text, 1, pattern.line_ends);
  return spaces(text, pattern.line_ends);
}

std::size_t digits_length(std::string_view text, bool together) {
  const auto is_number = [&](std::size_t at, std::size_t& length) {
    const Character c = first_character(text.substr(at));
    const Class kind = c.valid ? class_of(c.code) : Class::other;
    length = c.valid ? c.length : 1;
    return kind == Class::number || kind == Class::digit;
  };
  std::size_t length = 0;
  const bool number = is_number(0, length);
  std::size_t end = length;
  while (end < text.size() && (!number || together) && is_number(end, length) == number) end += length;
  return end;
}

}  // namespace text

std::vector<std::string_view> gpt2_pieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    pieces.push_back(text.substr(0, text::piece_length(text, text::gpt2_pattern())));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace attn
