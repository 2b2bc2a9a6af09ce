#include "report/figure/text.hpp"

#include "core/testing.hpp"

namespace attn::test {
namespace {

// The first and the last characters of each number of bytes.
TEST(FigureText, CharactersOfEveryLengthStay) {
  for (const char* text : {"!", "~", "\u00a1", "\u07ff", "\u0800", "\ufffd", "\U00010000", "\U0010fffd"}) {
    EXPECT_EQ(figure::clean(text), text);
  }
}

// The first and the last characters of blocks, and their neighbours: East_Asian_Width W or F, and the categories Mn, Me
// and Cf, as Python's unicodedata (Unicode 14) has them.
TEST(FigureText, ColumnsAreUnicodes) {
  for (const char* wide : {"\u1100", "\u115f", "\u2e80",     "\u303e",     "\u3041",     "\ua4c6",    "\ua960",
                           "\ua97c", "\uac00", "\ud7a3",     "\uf900",     "\ufad9",     "\ufe30",    "\ufe6b",
                           "\uff01", "\uff60", "\U0001f004", "\U0001faf6", "\U00020000", "\U0002ea60"}) {
    EXPECT_EQ(figure::columns_of(wide), 2) << wide;
  }
  for (const char* narrow :
       {"a",      "\u02ff", "\u0370", "\u0482", "\u048a", "\u05be", "\u064a",    "\u0660", "\u0903",
        "\u093b", "\u093d", "\u10ff", "\u1160", "\u1dbf", "\u1e00", "\u200a",    "\u2100", "\u303f",
        "\ua4d0", "\ua95f", "\ufb00", "\ufdff", "\ufe70", "\uff61", "\U0001fb00"}) {
    EXPECT_EQ(figure::columns_of(narrow), 1) << narrow;
  }
  for (const char* none : {"\u0300", "\u036f", "\u0483", "\u0489", "\u0591", "\u05bd", "\u064b", "\u065f",
                           "\u0900", "\u0902", "\u093c", "\u1ab0", "\u1ace", "\u1dc0", "\u1dff", "\u200b",
                           "\u200d", "\u20d0", "\u20f0", "\ufe00", "\ufe0f", "\ufe20", "\ufe2f"}) {
    EXPECT_EQ(figure::columns_of(none), 0) << none;
  }
}

}  // namespace
}  // namespace attn::test
