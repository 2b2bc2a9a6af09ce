// Cases of the patterns' own regular expressions, and of UAX #15, whose answers follow from their definitions.
#include "text/pieces.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/nfc.hpp"

namespace attn::test {
namespace {

using Texts = std::vector<std::string>;

constexpr std::string_view kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Texts pieces_of(std::string_view text, std::string_view pattern) {
  const text::Splitter step = text::split_at(pattern);
  Texts pieces;
  text::Cutter(std::span(&step, 1)).cut(text, true, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(Pieces, ARunOfBlanksEndsBehindItsLastLineEnd) {
  EXPECT_EQ(pieces_of("\n  a", kQwen), (Texts{"\n", " ", " a"}));           // \s*[\r\n]+ comes first
  EXPECT_EQ(pieces_of("\n  a", text::kGpt2Pattern), (Texts{"\n ", " a"}));  // \s+(?!\S)
}

TEST(Pieces, TheLongSIsAnSWhereCapitalsCount) {  // (?i:'s) folds U+017F to s
  EXPECT_EQ(pieces_of("'\u017fab", kQwen), (Texts{"'\u017f", "ab"}));
  EXPECT_EQ(pieces_of("'\u017fab", text::kGpt2Pattern), (Texts{"'", "\u017fab"}));
}

// Oniguruma asks Latin-1 what \w is, but in a set it asks Unicode; both call a letter a word.
TEST(Pieces, AHalfIsAWordBesideSetsAlone) {
  EXPECT_EQ(pieces_of("-\u00bd\u00e9", R"(\w+)"), (Texts{"-", "\u00bd\u00e9"}));
  EXPECT_EQ(pieces_of("-\u00bd\u00e9", R"([\w]+)"), (Texts{"-\u00bd", "\u00e9"}));
  EXPECT_EQ(pieces_of("a-\u00bd", R"([^\w\s]+)"), (Texts{"a", "-\u00bd"}));
  EXPECT_EQ(pieces_of("a-\u00bd", R"([\W]+)"), (Texts{"a", "-\u00bd"}));
}

TEST(Pieces, CodesInPatternsAreTheirCharacters) {
  EXPECT_EQ(pieces_of("xAy", R"(\x41)"), (Texts{"x", "A", "y"}));
  EXPECT_EQ(pieces_of("x\u00e9y", R"(\x{e9}y)"), (Texts{"x", "\u00e9y"}));
  EXPECT_EQ(pieces_of("x\u00e91", R"(\u00e91)"), (Texts{"x", "\u00e91"}));
  EXPECT_EQ(pieces_of("a\U0001f600b", R"([\x{1F5FF}-\x{1F601}])"), (Texts{"a", "\U0001f600", "b"}));
  EXPECT_EQ(pieces_of("ABCD", R"([\u0042-\u0043]+)"), (Texts{"A", "BC", "D"}));
}

// As Oniguruma has them (pre_tokenizers.Split of tokenizers): a line begins behind each line end but the text's last
// one.
TEST(Pieces, AssertionsHoldAtLinesAndWords) {
  const struct {
    const char *pattern, *text;
    Texts pieces;
  } kCases[] = {
      {"^a", "aa\naa\n", {"a", "a\n", "a", "a\n"}},
      {"^#+ ", "# a\n## b # c", {"# ", "a\n", "## ", "b # c"}},
      {"^[\\s\\S]", "a\n\nb\n", {"a", "\n", "\n", "b", "\n"}},
      {"\\n^", "a\n\n", {"a", "\n", "\n"}},
      {"\\n^b", "a\nb", {"a", "\nb"}},
      {"a$", "aa\naa\n", {"a", "a", "\na", "a", "\n"}},
      {"\\w+$", "one two\nthree four\n", {"one ", "two", "\nthree ", "four", "\n"}},
      {"[\\s\\S]$", "a\n\n", {"a", "\n", "\n"}},
      {"\\bat", "at bat at", {"at", " bat ", "at"}},
      {"\\Bat", "at bat at", {"at b", "at", " at"}},
      {"at\\b", "at ate at", {"at", " ate ", "at"}},
      {"at\\B", "at ate at", {"at ", "at", "e at"}},
      {"\\b-", "a- -", {"a", "-", " -"}},
      {"\\B-", "a- -", {"a- ", "-"}},
      {"\\b\u00e9", "\u00e9 a\u00e9 \u00e9", {"\u00e9", " a\u00e9 ", "\u00e9"}},
  };
  for (const auto& [pattern, text, pieces] : kCases) EXPECT_EQ(pieces_of(text, pattern), pieces) << pattern;
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
