// Heatmaps of weights in the terminal: characters, colours, widths, labels.
#include "attn/figure.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

namespace fig = figure;
using testing::HasSubstr;
using testing::Not;

Tensor some_weights() { return Tensor::of({{1, 0, 0}, {0.25f, 0.75f, 0}, {0.2f, 0.3f, 0.5f}}); }

TEST(TerminalHeatmap, PlainInAscii) {
  EXPECT_EQ(fig::terminal_heatmap(some_weights(), {.tokens = {"a", "bb", "c"}, .keep = tril_ones(3, 3, DType::boolean)},
                                  {.characters = fig::Characters::ascii}),
            "    a     bb    c\n"
            "a     1     .     .\n"
            "bb   0.25  0.75   .\n"
            "c    0.2   0.3   0.5\n"
            "    . masked\n");
}

TEST(TerminalHeatmap, FitsTheWidth) {
  for (const std::size_t columns : {20u, 33u, 80u, 200u}) {
    for (const std::int64_t t : {1, 6, 17, 70, 300}) {
      const std::vector<std::string> tokens(static_cast<std::size_t>(t), "a long token 🙂🙂🙂🙂🙂🙂");
      const std::string text = fig::terminal_heatmap(Tensor::ones({t, t}), {.tokens = tokens}, {.columns = columns});
      std::istringstream in(text);
      std::string line;
      while (std::getline(in, line)) {
        // Continuation bytes take no column; the emoji, of four bytes, take two.
        std::size_t width = 0;
        for (const char c : line) width += (c & 0xc0) != 0x80, width += (static_cast<unsigned char>(c) >= 0xf0);
        EXPECT_LE(width, columns) << line;
      }
    }
  }
}

TEST(TerminalHeatmap, ColoursOnlyWhenAsked) {
  const Tensor w = some_weights();
  EXPECT_THAT(fig::terminal_heatmap(w), Not(HasSubstr("\x1b")));
  EXPECT_THAT(fig::terminal_heatmap(w, {}, {.depth = fig::Depth::palette}), HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(fig::terminal_heatmap(w, {}, {.depth = fig::Depth::full}), HasSubstr("\x1b[48;2;253;231;36m"));
}

TEST(TerminalHeatmap, SaysWhatItPooledAndWhatIsNotFinite) {
  Tensor w = Tensor::zeros({200, 200});
  w.set({100, 100}, kNan);
  const std::string text = fig::terminal_heatmap(w);
  EXPECT_THAT(text, HasSubstr("200 × 200 drawn as 67 × 67: each cell is the largest of 3 × 3"));
  EXPECT_THAT(text, HasSubstr("? NaN"));
}

TEST(TerminalHeatmap, LabelsCannotDriveTheTerminal) {
  const std::string text = fig::terminal_heatmap(some_weights(), {.tokens = {"\x1b[2J", "\xc2\x9b", "\u202eevil"}});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b")));
  EXPECT_THAT(text, Not(HasSubstr("\u202e")));
}

TEST(TerminalHeatmap, AnyNumberOfColumnsIsTaken) {
  const std::string wide = fig::terminal_heatmap(some_weights(), {}, {.columns = 4096});
  for (const std::size_t columns : {std::size_t{1} << 63, SIZE_MAX}) {
    EXPECT_EQ(fig::terminal_heatmap(some_weights(), {}, {.columns = columns}), wide);
  }
}

}  // namespace
}  // namespace attn::test
