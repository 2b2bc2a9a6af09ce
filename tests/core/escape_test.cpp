#include "core/escape.hpp"

#include <gtest/gtest.h>

#include "attn/error.hpp"

namespace attn::test {
namespace {

TEST(Escape, LeavesTextAlone) {
  for (const char* text : {"", "plain", "“é” → ∞ 日本語 🦙", "\\u202e", "नमस्ते", "👩‍🚀"})
    EXPECT_EQ(escaped(text), text);
}

TEST(Escape, ShowsWhatDrivesATerminal) {
  EXPECT_EQ(escaped("a\x1b[31mb\r\n\t"), "a\\u001b[31mb\\u000d\\u000a\\u0009");
  EXPECT_EQ(escaped(std::string_view("\0\x7f", 2)), "\\u0000\\u007f");
  EXPECT_EQ(escaped("\u0085\u009b31m\u00a0"), "\\u0085\\u009b31m\u00a0");
  EXPECT_EQ(escaped("file\u202etxt.exe"), "file\\u202etxt.exe");
  EXPECT_EQ(escaped("\u061c\u200e\u200f\u202a\u2066\u2069\u2028"), "\\u061c\\u200e\\u200f\\u202a\\u2066\\u2069\\u2028");
}

TEST(Escape, ShowsBytesThatAreNoText) {
  EXPECT_EQ(escaped("\x9b[31m"), "\\x9b[31m");  // the control sequence introducer of terminals of eight bits
  EXPECT_EQ(escaped("\xc3\xa9\xc3"), "é\\xc3");
  EXPECT_EQ(escaped("\xe2\x80"), "\\xe2\\x80");
  EXPECT_EQ(escaped("\xc0\x9b\xed\xa0\x80"), "\\xc0\\x9b\\xed\\xa0\\x80");  // a long form, a surrogate
}

TEST(Escape, KeepsWhatItIsTold) { EXPECT_EQ(escaped("a\nb\tc\r", "\n\t"), "a\nb\tc\\u000d"); }

TEST(Escape, IsPartOfEveryError) {
  const Error error(Error::Kind::data, "load\x1b", "x\u202e", "\xff", "y\n");
  EXPECT_STREQ(error.what(), "[load\\u001b] expected x\\u202e; found \\xff; y\\u000a");
}

}  // namespace
}  // namespace attn::test
