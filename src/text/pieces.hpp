// The patterns by which released models cut a text into the pieces that byte-pair encoding merges within.
#pragma once

#include <cstddef>
#include <string_view>

namespace attn::text {

// What the patterns differ in.
struct Pattern {
  std::string_view written;  // as tokenizer.json has it
  bool any_case;             // contractions in capitals count, too
  bool any_lead;             // a word takes any character before it, but for line ends and numbers; else a blank alone
  std::size_t digits;        // the most in a piece; 0 for all of them, and the blank before
  bool line_ends;            // line ends close a run of blanks, and belong to the signs before them
};

const Pattern& gpt2_pattern();
const Pattern& llama3_pattern();  // cl100k's, too
const Pattern& qwen_pattern();
// Null for a pattern that is not known.
const Pattern* find_pattern(std::string_view written);

// Bytes of the first piece of `text`, which is not empty. A byte that is no UTF-8 counts as a sign.
std::size_t piece_length(std::string_view text, const Pattern& pattern);

// The first piece by Digits: a run without a number, or a number, or with `together` a run of them.
std::size_t digits_length(std::string_view text, bool together);

}  // namespace attn::text
