// GPT-2's pattern as a walk over the characters; each step takes the first alternative that fits.
#include "text/pieces.hpp"

#include <algorithm>
#include <array>

#include "attn/tokenizer.hpp"
#include "text/classes.hpp"
#include "core/utf8.hpp"

namespace attn {
namespace text {

Class class_of(std::uint32_t code) {
  static const auto ascii = [] {
    std::array<Class, 128> table{};
    const auto runs = class_runs();
    std::size_t run = 0;
    for (std::uint32_t c = 0; c < table.size(); ++c) {
      if (run + 1 < runs.size() && runs[run + 1] / 4 == c) ++run;
      table[c] = static_cast<Class>(runs[run] % 4);
    }
    return table;
  }();
  if (code < ascii.size()) return ascii[code];
  const auto runs = class_runs();
  const auto after = std::upper_bound(runs.begin(), runs.end(), code * 4 + 3);
  return static_cast<Class>(*(after - 1) % 4);
}

namespace {

struct Step {
  Class kind;
  std::size_t length;
};

Step step_at(std::string_view text) {
  const Character c = first_character(text);
  return c.valid ? Step{class_of(c.code), c.length} : Step{Class::other, 1};
}

// 's|'t|'re|'ve|'m|'ll|'d
std::size_t contraction(std::string_view text) {
  if (text.front() != '\'') return 0;
  for (const std::string_view end : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (text.substr(1).starts_with(end)) return 1 + end.size();
  }
  return 0;
}

// Where the run of `kind` that goes on at `at` ends.
std::size_t run_end(std::string_view text, std::size_t at, Class kind) {
  while (at < text.size()) {
    const Step next = step_at(text.substr(at));
    if (next.kind != kind) break;
    at += next.length;
  }
  return at;
}

// \s+(?!\S)|\s+: all of the run but its last character, if that leaves any and a word follows.
std::size_t spaces(std::string_view text) {
  std::size_t end = 0, before_last = 0;
  while (end < text.size()) {
    const Step next = step_at(text.substr(end));
    if (next.kind != Class::space) return before_last > 0 ? before_last : end;
    before_last = end;
    end += next.length;
  }
  return end;
}

}  // namespace

std::size_t piece_length(std::string_view text) {
  if (const std::size_t length = contraction(text)) return length;
  const std::size_t blank = text.front() == ' ' && text.size() > 1 ? 1 : 0;
  const Step first = step_at(text.substr(blank));
  return first.kind == Class::space ? spaces(text) : run_end(text, blank + first.length, first.kind);
}

}  // namespace text

std::vector<std::string_view> gpt2_pieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    pieces.push_back(text.substr(0, text::piece_length(text)));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace attn
