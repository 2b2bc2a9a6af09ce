// Figures of lines from queries to keys, read back.
#include <set>

#include "attn/figure.hpp"
#include "core/testing.hpp"
#include "report/xml.hpp"

namespace attn::test {
namespace {

namespace fig = figure;

Tensor three_rows() { return Tensor::of({{1, 0, 0}, {0.25f, 0.75f, 0}, {0.2f, 0.3f, 0.5f}}); }

TEST(Lines, OfOneQueryLeaveTheOthersOut) {
  for (std::int64_t query = 0; query < 3; ++query) {
    std::set<std::string> hints, expected;
    for (const Element& e : Document(fig::lines(three_rows(), {.tokens = {"a", "b", "c"}, .query = query})).all("line"))
      hints.insert(e.hint);
    for (const Element& e : Document(fig::lines(three_rows(), {.tokens = {"a", "b", "c"}})).all("line")) {
      if (e.hint.starts_with(static_cast<char>('a' + query))) expected.insert(e.hint);
    }
    EXPECT_EQ(hints, expected);
    EXPECT_FALSE(hints.empty());
  }
  EXPECT_THROW(fig::lines(three_rows(), {.query = 3}), Error);
  EXPECT_THROW(fig::lines(three_rows(), {.query = -1}), Error);
}

TEST(Lines, NamesOfBothSidesStandAboveTheirTokens) {
  std::map<std::string, double> y;
  for (const Element& e : Document(fig::lines(three_rows(), {.tokens = {"a", "b", "c"}})).all("text"))
    y[e.text] = e.number("y");
  EXPECT_EQ(y.at("queries"), y.at("keys"));
  EXPECT_LT(y.at("keys") + 5, y.at("a"));
}

TEST(Lines, AreAsStrongAsTheWeight) {
  const Document d(fig::lines(three_rows(), {.tokens = {"a", "b", "c"}}));
  std::map<std::string, double> strength;
  for (const Element& e : d.all("line")) strength[e.hint] = e.number("stroke-opacity");
  EXPECT_EQ(strength.size(), 6u) << "weights of 0 are not drawn";
  EXPECT_NEAR(strength.at("a → a: 1"), 1, 0.01);
  EXPECT_NEAR(strength.at("b → a: 0.25"), 0.25, 0.01);
  EXPECT_NEAR(strength.at("c → c: 0.5"), 0.5, 0.01);
}

TEST(Lines, GoFromTheQueryToTheKey) {
  Tensor w = Tensor::zeros({2, 4, 4});
  w.set({1, 2, 0}, 1);
  const Document d(fig::lines(w, {.tokens = {"a", "b", "c", "d"}}));
  ASSERT_EQ(d.all("line").size(), 1u);
  const Element line = d.all("line")[0];
  for (const Element& e : d.all("text")) {
    if (e.text == "c" && e.number("x") < line.number("x1")) {
      EXPECT_NEAR(e.number("y"), line.number("y1"), 6);
    }
    if (e.text == "a" && e.number("x") > line.number("x2")) {
      EXPECT_NEAR(e.number("y"), line.number("y2"), 6);
    }
  }
  EXPECT_EQ(line.hint, "c → a, head 2: 1");
}

// However near to each other rows are: the lines of all heads of one leave room to those of the next.
TEST(Lines, RowsAreToldApart) {
  for (const std::int64_t tokens : {10, 100, 400}) {
    Tensor w = Tensor::zeros({8, tokens, tokens});
    for (std::int64_t i = 0; i < tokens; ++i) w.slice(1, i, i + 1).slice(2, i, i + 1).fill(1);
    std::vector<double> heights;
    double thickest = 0;
    for (const Element& e : Document(fig::lines(w, {.max_cells = 400})).all("line")) {
      EXPECT_EQ(e.number("y1"), e.number("y2"));
      heights.push_back(e.number("y1")), thickest = std::max(thickest, e.number("stroke-width"));
    }
    ASSERT_EQ(heights.size(), static_cast<std::size_t>(8 * tokens));
    std::ranges::sort(heights);
    const double step = heights[8] - heights[0];
    EXPECT_LE(thickest, step / 2) << tokens;
    EXPECT_LE(heights[7] - heights[0], 0.8 * step) << tokens;
  }
}

TEST(Lines, MillionsOfWeightsStayDrawable) {
  const std::string svg = fig::lines(Tensor::ones({12, 600, 600}), {.max_cells = 600});
  EXPECT_LT(svg.size(), 6000000u);
  const Document d(svg);
  EXPECT_EQ(d.all("line").size(), 20000u);
  bool told = false;
  for (const std::string& text : d.texts())
    told = told || text.find("4300000 weaker lines left out") != std::string::npos;
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace attn::test
