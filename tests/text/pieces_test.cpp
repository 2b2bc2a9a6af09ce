// Cases of the patterns' own regular expressions, and of UAX #15, whose answers follow from their definitions.
#include "text/pieces.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/nfc.hpp"

namespace attn::test {
namespace {

using Texts = std::vector<std::string>;

Texts pieces_of(std::string_view text, const text::Pattern& pattern) {
  Texts pieces;
  while (!text.empty()) {
    const std::size_t length = text::piece_length(text, pattern);
    pieces.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

TEST(Pieces, ARunOfBlanksEndsBehindItsLastLineEnd) {
  EXPECT_EQ(pieces_of("\n  a", text::qwen_pattern()), (Texts{"\n", " ", " a"}));  // \s*[\r\n]+ comes first
  EXPECT_EQ(pieces_of("\n  a", text::gpt2_pattern()), (Texts{"\n ", " a"}));      // \s+(?!\S)
}

TEST(Pieces, TheLongSIsAnSWhereCapitalsCount) {  // (?i:'s) folds U+017F to s
  EXPECT_EQ(pieces_of("'\u017fab", text::qwen_pattern()), (Texts{"'\u017f", "ab"}));
  EXPECT_EQ(pieces_of("'\u017fab", text::gpt2_pattern()), (Texts{"'", "\u017fab"}));
}

TEST(Nfc, AMarkOfTheSameClassIsBetweenALetterAndTheNext) {
  EXPECT_EQ(text::nfc("a\u0301"), "\u00e1");
  EXPECT_EQ(text::nfc("a\u0305\u0301"), "a\u0305\u0301");  // both of class 230: blocked
  EXPECT_EQ(text::nfc("a\u0323\u0301"), "\u1ea1\u0301");
}

TEST(Nfc, ASyllableOfHangulKeepsItsFirstTrailingLetter) {
  EXPECT_EQ(text::nfc("\uac01\u0301"), "\uac01\u0301");  // U+11A8 is the first of them
  EXPECT_EQ(text::nfc("\u1100\u1161\u11a8"), "\uac01");
}

}  // namespace
}  // namespace attn::test
