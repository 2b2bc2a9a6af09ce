// Figures of weights, read back: cells, labels, legends, texts.
#include "attn/figure.hpp"

#include <cmath>
#include <set>

#include "core/testing.hpp"
#include "report/xml.hpp"

namespace attn::test {
namespace {

namespace fig = figure;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kWords{"Your", "journey", "starts", "with", "one", "step"};

// Rectangles that tell what they show, as "query → key: value".
std::map<std::string, Element> cells(const Document& d) {
  std::map<std::string, Element> found;
  for (const Element& e : d.all("rect")) {
    if (e.hint.find(" → ") != std::string::npos) found[e.hint.substr(0, e.hint.rfind(": "))] = e;
  }
  return found;
}

std::string value_of(const Element& cell) { return cell.hint.substr(cell.hint.rfind(": ") + 2); }

double luminance(const std::string& hex) {
  const auto channel = [&](std::size_t at) { return std::stoi(hex.substr(at, 2), nullptr, 16); };
  return 0.3 * channel(1) + 0.59 * channel(3) + 0.11 * channel(5);
}

Tensor some_weights() { return Tensor::of({{1, 0, 0}, {0.25f, 0.75f, 0}, {0.2f, 0.3f, 0.5f}}); }

TEST(Heatmap, EveryCellTellsItsValueInItsPlace) {
  std::mt19937 rng(1);
  const Tensor w = uniform(rng, {4, 6}, DType::f32);
  const Document d(fig::heatmap(w, {.tokens = {"a", "b", "c", "d"}, .key_tokens = kWords}));
  const auto all = cells(d);
  ASSERT_EQ(all.size(), 24u);
  const Element& first = all.at("a → Your");
  const double size = first.number("width");
  const std::vector<std::string> rows{"a", "b", "c", "d"};
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      const Element& e = all.at(rows[static_cast<std::size_t>(i)] + " → " + kWords[static_cast<std::size_t>(j)]);
      EXPECT_NEAR(std::stod(value_of(e)), w.at({i, j}), 1e-5);
      EXPECT_NEAR(e.number("x"), first.number("x") + static_cast<double>(j) * size, 0.02);
      EXPECT_NEAR(e.number("y"), first.number("y") + static_cast<double>(i) * size, 0.02);
    }
  }
  for (const std::string& word : kWords) EXPECT_THAT(d.texts(), Contains(word));
}

TEST(Heatmap, ColoursAreTheScalesFromZeroToTheLargest) {
  const Tensor w = Tensor::of({{0, 0.25f}, {0.5f, 0.875f}});
  // Both ends of the published tables.
  const std::map<fig::Colours, std::pair<std::string, std::string>> ends{
      {fig::Colours::viridis, {"#440154", "#fde724"}}, {fig::Colours::cividis, {"#00224d", "#fde737"}}};
  for (const auto& [colours, pair] : ends) {
    const Document d(fig::heatmap(w, {.colours = colours}));
    const auto all = cells(d);
    EXPECT_EQ(all.at("1 → 1").attributes.at("fill"), pair.first);
    EXPECT_EQ(all.at("2 → 2").attributes.at("fill"), pair.second);
    EXPECT_THAT(d.texts(), Contains("0"));
    EXPECT_THAT(d.texts(), Contains("0.875"));
  }
  // Half of the largest is the middle of the scale, whatever the smallest is.
  const auto above_zero = cells(Document(fig::heatmap(Tensor::of({{0.5f, 1}, {0.75f, 1}}))));
  const auto from_zero = cells(Document(fig::heatmap(Tensor::of({{0, 1}, {0.5f, 1}}))));
  EXPECT_EQ(above_zero.at("1 → 1").attributes.at("fill"), from_zero.at("2 → 1").attributes.at("fill"));
  const Document below_zero(fig::heatmap(Tensor::of({{-2, 1}, {0, 1}})));
  EXPECT_EQ(cells(below_zero).at("1 → 1").attributes.at("fill"), "#440154");
  EXPECT_THAT(below_zero.texts(), Contains("-2"));
}

// Row i holds i + 1 weights of 1 / (i + 1), but for one of each row that is twice the others.
Tensor causal_weights(std::int64_t tokens) {
  Tensor w = Tensor::zeros({tokens, tokens});
  for (std::int64_t i = 0; i < tokens; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) w.set({i, j}, (j == i / 2 ? 2.0 : 1.0) / static_cast<double>(i + 2));
  }
  return w;
}

TEST(Heatmap, FromTwelveTokensOnEachRowHasItsOwnScale) {
  const Document d(fig::heatmap(causal_weights(24), {.keep = tril_ones(24, 24, DType::boolean)}));
  const auto all = cells(d);
  for (int i = 2; i <= 24; ++i) {
    const std::string row = std::to_string(i) + " → ";
    EXPECT_EQ(all.at(row + std::to_string((i - 1) / 2 + 1)).attributes.at("fill"), "#fde724") << i;
    EXPECT_EQ(all.at(row + std::to_string(i)).attributes.at("fill"), all.at("2 → 2").attributes.at("fill")) << i;
  }
  EXPECT_THAT(d.texts(), Contains("weight, by row"));
  EXPECT_THAT(d.texts(), Contains("row's max"));
  for (int i = 1; i <= 24; ++i) EXPECT_THAT(d.texts(), Contains(std::to_string(i)));  // every label is written
  const Document linear(fig::heatmap(causal_weights(24), {.scale = fig::Scale::linear}));
  EXPECT_THAT(linear.texts(), Contains("weight"));
  EXPECT_NE(cells(linear).at("24 → 12").attributes.at("fill"), "#fde724");
  const Document small(fig::heatmap(causal_weights(11)));
  EXPECT_THAT(small.texts(), Contains("weight")) << "few tokens share one scale";
}

TEST(Heatmap, DifferencesHaveZeroInTheMiddle) {
  const Tensor w = tensor({-0.5, 0, 0.25, 0.5}, {2, 2});
  const Document d(fig::heatmap(w, {.scale = fig::Scale::diverging}));
  const auto all = cells(d);
  EXPECT_EQ(all.at("1 → 1").attributes.at("fill"), "#2d004b");  // PuOr's ends and its middle
  EXPECT_EQ(all.at("1 → 2").attributes.at("fill"), "#f7f7f7");
  EXPECT_EQ(all.at("2 → 2").attributes.at("fill"), "#7f3b08");
  const Document above(fig::heatmap(w.slice(0, 1, 2).contiguous(), {.scale = fig::Scale::diverging}));
  EXPECT_THAT(above.texts(), Contains("-0.5"));  // as far below 0 as above
  const Document zero(fig::heatmap(Tensor::zeros({2, 2}), {.scale = fig::Scale::diverging}));
  EXPECT_EQ(cells(zero).at("1 → 1").attributes.at("fill"), "#f7f7f7");
  // Without colours the sign shows in the characters.
  const std::string text = fig::terminal_heatmap(tensor({-1, -0.3, 0, 0.3, 1, 0, 0, 0}, {1, 8}),
                                                 {.scale = fig::Scale::diverging}, {.columns = 22});
  EXPECT_THAT(text, testing::AllOf(HasSubstr("≡"), HasSubstr("-"), HasSubstr("░"), HasSubstr("█")));
}

TEST(Heatmap, MaskedCellsAreHatched) {
  const Document d(fig::heatmap(some_weights(), {.keep = tril_ones(3, 3, DType::boolean)}));
  EXPECT_EQ(cells(d).at("1 → 2").attributes.at("fill"), "url(#attn-masked)");
}

TEST(Figures, ALongTitleIsBrokenAndNeverCut) {
  std::string title;
  for (int i = 0; i < 40; ++i) title.append(i == 0 ? "word" : " word").append(std::to_string(i));
  const Tensor w = some_weights();
  for (const std::string& svg : {fig::heatmap(w, {.title = title}), fig::heads(w.unsqueeze(0), {.title = title}),
                                 fig::lines(w, {.title = title})}) {
    const Document d(svg);
    std::string all;
    for (const std::string& text : d.texts()) all.append(text).append(" ");
    for (int i = 0; i < 40; ++i) EXPECT_NE(all.find("word" + std::to_string(i) + " "), std::string::npos) << i;
    EXPECT_EQ(all.find("…"), std::string::npos);
  }
}

TEST(Figures, NothingIsCutByTheEdge) {
  for (const std::int64_t tokens : {1, 2, 24, 200}) {
    SCOPED_TRACE(tokens);
    const Tensor w = causal_weights(tokens);
    const std::vector<std::string> letters(static_cast<std::size_t>(tokens), "i");
    for (const std::string& title : {std::string(), std::string("A title")}) {
      expect_inside(fig::heatmap(w, {.title = title, .tokens = letters}));
      expect_inside(fig::heads(w.unsqueeze(0), {.title = title, .tokens = letters}));
      expect_inside(fig::lines(w, {.title = title, .tokens = letters}));
      expect_inside(
          fig::lines(Tensor::ones({2, tokens, tokens}), {.title = title, .tokens = letters, .max_cells = 10}));
    }
  }
  // Everything that lines have to say, in one note.
  Tensor many = Tensor::ones({2, 200, 200});
  many.set({0, 3, 3}, kNan);
  expect_inside(fig::lines(many, {.max_cells = 190}));
}

TEST(Heatmap, BrighterIsMore) {
  Tensor w = Tensor::empty({1, 32});
  for (std::int64_t i = 0; i < 32; ++i) w.set({0, i}, static_cast<double>(i));
  for (const auto colours : {fig::Colours::viridis, fig::Colours::cividis, fig::Colours::grey}) {
    const auto all = cells(Document(fig::heatmap(w, {.colours = colours})));
    for (int i = 2; i <= 32; ++i) {
      const double before = luminance(all.at("1 → " + std::to_string(i - 1)).attributes.at("fill"));
      const double here = luminance(all.at("1 → " + std::to_string(i)).attributes.at("fill"));
      EXPECT_GT((here - before) * (colours == fig::Colours::grey ? -1 : 1), 0) << i;
    }
  }
}

TEST(Heatmap, LogScaleSpacesByFactors) {
  const Tensor w = Tensor::of({{0, 0.001f, 0.01f}, {0.1f, 1, 1}});
  const Document d(fig::heatmap(w, {.scale = fig::Scale::log}));
  const auto all = cells(d);
  EXPECT_EQ(all.at("1 → 2").attributes.at("fill"), "#440154");
  EXPECT_EQ(all.at("1 → 1").attributes.at("fill"), "#ffffff") << "0 has no place on the scale";
  const Document linear(fig::heatmap(Tensor::of({{0, 1, 2}, {3, 3, 3}})));
  EXPECT_EQ(all.at("1 → 3").attributes.at("fill"), cells(linear).at("1 → 2").attributes.at("fill"));
  EXPECT_EQ(all.at("2 → 1").attributes.at("fill"), cells(linear).at("1 → 3").attributes.at("fill"));
  EXPECT_THAT(d.texts(), Contains("0.001"));
  expect_error(Error::Kind::argument, {"log", "-1"}, [&] {
    fig::heatmap(Tensor::of({{-1, 1}}), {.scale = fig::Scale::log});
  });
}

TEST(Heatmap, NanInfinityAndMaskAreDrawnAsSuch) {
  Tensor w = some_weights();
  w.set({1, 0}, kNan), w.set({2, 0}, -kInf), w.set({2, 1}, kInf);
  const Document d(fig::heatmap(w, {.keep = tril_ones(3, 3, DType::boolean)}));
  const auto all = cells(d);
  EXPECT_EQ(all.at("2 → 1").attributes.at("fill"), "url(#attn-nan)");
  EXPECT_EQ(value_of(all.at("2 → 1")), "NaN");
  EXPECT_EQ(all.at("3 → 1").attributes.at("fill"), "url(#attn-minus-inf)");
  EXPECT_EQ(value_of(all.at("3 → 1")), "-inf");
  EXPECT_TRUE(all.at("3 → 2").has("stroke"));
  EXPECT_EQ(value_of(all.at("1 → 2")), "masked");
  std::set<std::string> looks;
  for (const char* cell : {"1 → 1", "1 → 2", "2 → 1", "3 → 1", "3 → 2"})
    looks.insert(all.at(cell).attributes.at("fill"));
  EXPECT_EQ(looks.size(), 5u);
  for (const char* name : {"NaN", "-inf", "inf", "masked", "0.5", "1"}) EXPECT_THAT(d.texts(), Contains(name));
  std::set<std::string> patterns;
  for (const Element& p : d.all("pattern")) patterns.insert("url(#" + p.attributes.at("id") + ")");
  EXPECT_TRUE(patterns.contains("url(#attn-nan)") && patterns.contains("url(#attn-minus-inf)"));
}

TEST(Heatmap, LegendNamesOnlyWhatOccurs) {
  EXPECT_THAT(Document(fig::heatmap(some_weights())).texts(), Not(Contains("NaN")));
  EXPECT_THAT(Document(fig::heatmap(some_weights())).texts(), Not(Contains("masked")));
}

TEST(Heatmap, NumbersAreReadableOnEveryColour) {
  const Document d(fig::heatmap(Tensor::of({{0, 0.25f}, {0.5f, 1}})));
  std::map<std::string, std::string> ink;
  for (const Element& e : d.all("text")) {
    if (e.has("fill")) ink[e.text] = e.attributes.at("fill");
  }
  EXPECT_EQ(ink.at("0.00"), "#ffffff");
  EXPECT_EQ(ink.at("1.00"), "#000000");
}

TEST(Heatmap, LargeOnesArePooledAndSaySo) {
  Tensor w = Tensor::zeros({1000, 1000});
  w.set({777, 333}, 0.5);
  w.set({3, 3}, kNan);
  const std::string svg = fig::heatmap(w);
  EXPECT_LT(svg.size(), 300000u);
  const Document d(svg);
  EXPECT_THAT(d.texts(), Contains("1000 × 1000 drawn as 125 × 125: each cell is the largest of 8 × 8"));
  std::vector<Element> bright, nan;
  for (const Element& e : d.all("rect")) {
    if (e.attributes.at("fill") == "#fde724" && e.number("width") < 10) bright.push_back(e);
    if (e.attributes.at("fill") == "url(#attn-nan)" && e.number("width") < 10) nan.push_back(e);
  }
  ASSERT_EQ(bright.size(), 1u);
  ASSERT_EQ(nan.size(), 1u) << "one NaN of 64 cells must not hide";
  // Cells are blocks: row 777 / 8 = 97, column 333 / 8 = 41; the NaN is in block 0, 0.
  const double cell = bright[0].number("height");
  EXPECT_NEAR(bright[0].number("y") - nan[0].number("y"), 97 * cell, 0.1);
  EXPECT_NEAR(bright[0].number("x") - nan[0].number("x"), 41 * cell, 0.1);
}

TEST(Heatmap, ExtremeValuesKeepValidNumbers) {
  const double huge = std::numeric_limits<double>::max();
  for (const auto& values : std::vector<std::vector<double>>{{-huge, huge},
                                                             {5e-324, 0},
                                                             {1, 1},
                                                             {kNan, kNan},
                                                             {-kInf, kInf},
                                                             {1e-300, 1e300},
                                                             {1, std::nextafter(1, 2)}}) {
    for (const auto scale : {fig::Scale::linear, fig::Scale::log}) {
      if (scale == fig::Scale::log && values[0] < 0 && std::isfinite(values[0])) continue;
      const Document d(fig::heatmap(tensor(values, {1, 2}), {.scale = scale}));
      EXPECT_EQ(cells(d).size(), 2u);
    }
  }
}

TEST(Heatmap, HostileTokensAreText) {
  const std::vector<std::string> hostile{"</script><svg onload=\"alert(1)\">",
                                         "\"quotes\" & 'q'",
                                         "שלום",
                                         "🙂",
                                         "",
                                         std::string(10000, 'x'),
                                         "\xff\xfe",
                                         "a\nb\x1b[2J",
                                         "\u202eevil",
                                         " lead",
                                         "]]>"};
  const auto n = static_cast<std::int64_t>(hostile.size());
  const std::string svg = fig::heatmap(Tensor::ones({n, n}), {.title = hostile[0], .tokens = hostile});
  const Document d(svg);
  const auto texts = d.texts();
  for (const char* shown : {"</script><svg onl…", "\"quotes\" & 'q'", "שלום", "🙂", "∅", "xxxxxxxxxxxxxxxxx…",
                            "\\xFF\\xFE", "a␊b␛[2J", "\uFFFDevil", "␣lead", "]]>"}) {
    EXPECT_EQ(std::count(texts.begin(), texts.end(), shown), 2) << shown << ": a row's label and a column's";
  }
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("</script")));
  EXPECT_LT(svg.size(), 100000u);
  std::set<std::string> tags;
  for (const Element& e : d.elements()) tags.insert(e.tag);
  EXPECT_EQ(tags, (std::set<std::string>{"svg", "title", "defs", "pattern", "rect", "g", "text", "line"}));
}

TEST(Heatmap, RandomBytesAsTokensStayWellFormed) {
  for_seeds(50, [](std::mt19937& rng) {
    std::vector<std::string> tokens(3);
    for (std::string& token : tokens) {
      for (std::int64_t i = pick(rng, 0, 40); i > 0; --i) token.push_back(static_cast<char>(pick(rng, 0, 255)));
    }
    const Document d(fig::heatmap(some_weights(), {.title = tokens[0], .tokens = tokens}));
    EXPECT_FALSE(d.texts().empty());
  });
}

TEST(Heatmap, SameInputSameText) { EXPECT_EQ(fig::heatmap(some_weights()), fig::heatmap(some_weights())); }

TEST(Heatmap, AnyDtypeAndStride) {
  const Tensor w = Tensor::of({{0.5f, 0.25f}, {1, 0}});
  EXPECT_EQ(fig::heatmap(w), fig::heatmap(w.to(DType::bf16)));
  EXPECT_EQ(fig::heatmap(w), fig::heatmap(w.to(DType::f64).transpose(0, 1).contiguous().transpose(0, 1)));
}

TEST(Heatmap, RefusesWhatDoesNotFit) {
  const Tensor w = some_weights();
  expect_error(Error::Kind::shape, {"(queries, keys)", "(2, 3, 3)"}, [&] { fig::heatmap(Tensor::ones({2, 3, 3})); });
  expect_error(Error::Kind::shape, {"(0, 3)"}, [&] { fig::heatmap(Tensor::ones({0, 3})); });
  expect_error(Error::Kind::shape, {"no tensor"}, [&] { fig::heatmap({}); });
  const Tensor endless = Tensor::zeros({1, 1}).expand({std::int64_t{1} << 30, std::int64_t{1} << 30});
  expect_error(Error::Kind::shape, {"at most 2^32 numbers"}, [&] { fig::heatmap(endless); });
  expect_error(Error::Kind::shape, {"at most 2^32 numbers"}, [&] { fig::lines(endless); });
  expect_error(Error::Kind::shape, {"at most 2^32 numbers"}, [&] { fig::heads(endless.unsqueeze(0)); });
  expect_error(Error::Kind::shape, {"at most 2^32 numbers"}, [&] { fig::terminal_heatmap(endless); });
  expect_error(Error::Kind::shape, {"3 tokens", "1"}, [&] { fig::heatmap(w, {.tokens = {"a"}}); });
  expect_error(Error::Kind::shape, {"3 key tokens", "2"}, [&] { fig::heatmap(w, {.key_tokens = {"a", "b"}}); });
  expect_error(Error::Kind::shape, {"mask (3, 3)", "(2, 2)"},
               [&] { fig::heatmap(w, {.keep = tril_ones(2, 2, DType::boolean)}); });
  expect_error(Error::Kind::argument, {"max_cells"}, [&] { fig::heatmap(w, {.max_cells = 0}); });
  expect_error(Error::Kind::argument, {"lines()", "found 1"}, [&] { fig::heatmap(w, {.query = 1}); });
}

// ---- heads --------------------------------------------------------------------------------------

TEST(Heads, ShareOneScale) {
  Tensor w = Tensor::zeros({2, 3, 3});
  w.select(0, 0).copy_from(some_weights());
  w.select(0, 1).fill(0.25);
  const Document d(fig::heads(w));
  EXPECT_THAT(d.texts(), Contains("head 1"));
  EXPECT_THAT(d.texts(), Contains("head 2"));
  std::multimap<std::string, std::string> fills;
  for (const Element& e : d.all("rect")) {
    if (!e.hint.empty()) fills.emplace(value_of(e), e.attributes.at("fill"));
  }
  EXPECT_EQ(fills.count("0.25"), 10u);
  const auto [first, last] = fills.equal_range("0.25");
  for (auto at = first; at != last; ++at) EXPECT_EQ(at->second, first->second);
}

TEST(Heads, LayersAreRows) {
  const Document d(fig::heads(Tensor::ones({2, 3, 4, 4})));
  double y1 = 0, y2 = 0;
  for (const Element& e : d.all("text")) {
    if (e.text == "layer 1, head 3") y1 = e.number("y");
    if (e.text == "layer 2, head 1") y2 = e.number("y");
  }
  EXPECT_GT(y1, 0);
  EXPECT_GT(y2, y1);
  expect_error(Error::Kind::shape, {"(heads, queries, keys)", "(4, 4)"}, [] { fig::heads(Tensor::ones({4, 4})); });
  expect_error(Error::Kind::shape, {"1024 heads"}, [] { fig::heads(Tensor::ones({1025, 1, 1})); });
}

}  // namespace
}  // namespace attn::test
