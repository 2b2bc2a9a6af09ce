// Vectors in space and the strip of steps, read back.
#include <cmath>
#include <set>

#include "attn/figure.hpp"
#include "attn/modules.hpp"
#include "attn/reference.hpp"
#include "core/testing.hpp"
#include "report/xml.hpp"

namespace attn::test {
namespace {

namespace fig = figure;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kWords{"Your", "journey", "starts", "with", "one", "step"};

Tensor six_vectors() {
  return Tensor::of({{0.43f, 0.15f, 0.89f},
                     {0.55f, 0.87f, 0.66f},
                     {0.57f, 0.85f, 0.64f},
                     {0.22f, 0.58f, 0.33f},
                     {0.77f, 0.25f, 0.10f},
                     {0.05f, 0.80f, 0.55f}});
}

std::string note(const Document& d) { return d.texts().back(); }

TEST(Space, ThreeDimensionsAsInTheNotebooks) {
  const std::vector<fig::Points> sets{{"inputs", six_vectors(), kWords}};
  const Document arrows(fig::space(sets));
  EXPECT_EQ(arrows.all("polygon").size(), 6u);
  for (const std::string& word : kWords) EXPECT_THAT(arrows.texts(), Contains(word));
  for (const char* text : {"X", "Y", "Z", "0", "1"}) EXPECT_THAT(arrows.texts(), Contains(text));
  const Document dots(fig::space(sets, {.arrows = false}));
  EXPECT_EQ(dots.all("circle").size(), 6u);
  // A dot stands on a stem, which ends at the dot; an arrow comes from the origin, and has none.
  const auto stems = [](const Document& d) {
    std::set<std::pair<double, double>> ends;
    for (const auto& line : d.all("line")) {
      if (line.attributes.contains("stroke-dasharray") && line.attributes.at("stroke-dasharray") == "2 3")
        ends.emplace(line.number("x2"), line.number("y2"));
    }
    return ends;
  };
  std::set<std::pair<double, double>> places;
  for (const auto& dot : dots.all("circle")) places.emplace(dot.number("cx"), dot.number("cy"));
  EXPECT_EQ(stems(dots), places);
  EXPECT_TRUE(stems(arrows).empty());
  const std::vector<fig::Points> short_one{{"v", Tensor::of({{0, 0, 0}, {1, 1, 1}}), {}}};
  const Document nowhere(fig::space(short_one));  // an arrow without a length
  EXPECT_EQ(nowhere.all("circle").size(), 1u);
  EXPECT_TRUE(stems(nowhere).empty());
}

// Seen straight from above, x grows to the right and y upwards: the places of tips are known by hand.
TEST(Space, SeenFromAboveXAndYAreTrue) {
  const std::vector<fig::Points> sets{{"v", Tensor::of({{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}}), {}}};
  const Document d(fig::space(sets, {.arrows = false, .azimuth = -90, .elevation = 90}));
  const auto dots = d.all("circle");
  ASSERT_EQ(dots.size(), 4u);
  const auto x = [&](std::size_t i) { return dots[i].number("cx"); };
  const auto y = [&](std::size_t i) { return dots[i].number("cy"); };
  EXPECT_GT(x(1), x(0) + 100);
  EXPECT_NEAR(y(1), y(0), 0.05);
  EXPECT_NEAR(x(2), x(0), 0.05);
  EXPECT_NEAR(y(0) - y(2), x(1) - x(0), 0.05) << "one scale for all axes";
  EXPECT_NEAR(x(3), x(1), 0.05);
  EXPECT_NEAR(y(3), y(2), 0.05);
}

TEST(Space, MoreDimensionsByPcaWithItsVarianceNamed) {
  // Variances 16, 4, 1 and 0 along four orthogonal directions of R^5.
  Tensor x = Tensor::zeros({6, 5});
  const double size[] = {4, 2, 1};
  for (std::int64_t axis = 0; axis < 3; ++axis) {
    x.set({2 * axis, axis}, size[axis]);
    x.set({2 * axis + 1, axis}, -size[axis]);
  }
  const std::vector<fig::Points> sets{{"v", x, {}}};
  const Document d(fig::space(sets));
  EXPECT_THAT(d.texts(), Contains("PC 1 (76.2 %)"));  // 16 / 21
  EXPECT_THAT(d.texts(), Contains("PC 2 (19 %)"));
  EXPECT_THAT(d.texts(), Contains("PC 3 (4.8 %)"));
  EXPECT_EQ(note(d), "5 dimensions by PCA: 3 axes hold 100 % of the variance");
}

TEST(Space, FewerDimensionsAreFlat) {
  const std::vector<fig::Points> two{{"q", Tensor::of({{1, 2}, {-1, 0.5f}}), {"a", "b"}}};
  const Document d(fig::space(two));
  EXPECT_THAT(d.texts(), Not(Contains("Z")));
  EXPECT_EQ(d.all("polygon").size(), 2u);
  const std::vector<fig::Points> one{{"q", tensor({1, -1, 3}, {3, 1}), {}}};
  const auto dots = Document(fig::space(one)).all("circle");
  ASSERT_EQ(dots.size(), 3u);
  EXPECT_NEAR(dots[2].number("cx") - dots[0].number("cx"), dots[0].number("cx") - dots[1].number("cx"), 0.05);
}

TEST(Space, LabelsDoNotLieOnEachOther) {
  const std::vector<fig::Points> sets{{"inputs", six_vectors(), kWords}};
  std::vector<Element> labels;
  for (const Element& e : Document(fig::space(sets)).all("text")) {
    if (!e.has("stroke") && std::find(kWords.begin(), kWords.end(), e.text) != kWords.end())
      labels.push_back(e);  // not its rim
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = std::abs(labels[i].number("y") - labels[j].number("y")) >= 12 ||
                         std::abs(labels[i].number("x") - labels[j].number("x")) >= 28;
      EXPECT_TRUE(apart) << labels[i].text << " and " << labels[j].text;
    }
  }
}

TEST(Space, LabelsDoNotLieOnArrows) {
  const Tensor x = six_vectors();
  const Tensor context = reference::matmul(reference::softmax(reference::matmul(x, x.transpose(0, 1))), x);
  const std::vector<fig::Points> sets{{"inputs", x, kWords}, {"context", context, kWords}};
  const Document d(fig::space(sets));
  int arrows = 0;
  for (const Element& line : d.all("line")) {
    if (!line.has("stroke-dasharray")) continue;
    ++arrows;
    for (const Element& e : d.all("text")) {
      if (e.has("stroke") || std::find(kWords.begin(), kWords.end(), e.text) == kWords.end()) continue;
      const double left = e.number("x"), right = left + 5.0 * static_cast<double>(e.text.size()), y = e.number("y");
      for (double gone = 0; gone <= 1; gone += 0.002) {
        const double at_x = line.number("x1") + gone * (line.number("x2") - line.number("x1"));
        const double at_y = line.number("y1") + gone * (line.number("y2") - line.number("y1"));
        ASSERT_FALSE(at_x > left && at_x < right && at_y > y - 7 && at_y < y) << e.text;
      }
    }
  }
  EXPECT_EQ(arrows, 12);
}

TEST(Space, ASecondSetLooksDifferentAndIsNamed) {
  const std::vector<fig::Points> sets{{"inputs", six_vectors(), {}},
                                      {"context", six_vectors().slice(0, 0, 1), {"Your-context"}}};
  const Document d(fig::space(sets, {.arrows = false}));
  EXPECT_EQ(note(d), "inputs (filled), context (hollow)");
  EXPECT_EQ(d.all("circle")[6].attributes.at("fill"), "#ffffff");
  EXPECT_NE(d.all("circle")[0].attributes.at("fill"), "#ffffff");
}

TEST(Space, WhatIsNotFiniteIsLeftOutAndCounted) {
  Tensor x = six_vectors().clone();
  x.set({2, 1}, kNan), x.set({3, 0}, kInf);
  const std::vector<fig::Points> sets{{"v", x, {}}};
  const Document d(fig::space(sets, {.arrows = false}));
  EXPECT_EQ(d.all("circle").size(), 4u);
  EXPECT_EQ(note(d), "2 not finite, not drawn");
}

TEST(Space, NothingIsCutByTheEdge) {
  const std::vector<fig::Points> sets{{"inputs", six_vectors(), kWords}, {"context", six_vectors(), kWords}};
  for (const bool arrows : {false, true}) expect_inside(fig::space(sets, {.arrows = arrows}));
}

TEST(Space, RefusesWhatDoesNotFit) {
  const auto refused = [](const std::vector<fig::Points>& sets, const std::vector<std::string>& parts) {
    expect_error(Error::Kind::shape, parts, [&] { fig::space(sets); });
  };
  refused({}, {"vectors (n, d)"});
  refused({{"v", Tensor::ones({3}), {}}}, {"vectors (n, d)", "(3,)"});
  refused({{"v", Tensor::ones({0, 3}), {}}}, {"(0, 3)"});
  refused({{"v", Tensor::ones({2, 3}), {}}, {"w", Tensor::ones({2, 4}), {}}}, {"size 3", "(2, 4)"});
  refused({{"v", Tensor::ones({2, 3}), {"a"}}}, {"2 labels", "1"});
  const std::vector<fig::Points> fine{{"v", Tensor::ones({2, 3}), {}}};
  expect_error(Error::Kind::argument, {"size from"}, [&] { fig::space(fine, {.width = 1}); });
}

// ---- the strip --------------------------------------------------------------------------------------

Trace two_heads() {
  Generator rng(123);
  MultiHeadAttention module({.d_in = 3, .d_out = 4, .context_length = 6, .num_heads = 2}, rng);
  Trace trace;
  module.AttentionLayer::forward(six_vectors(), &trace);
  return trace;
}

TEST(Steps, EachHasItsNameShapeAndRange) {
  const Trace trace = two_heads();
  const Document d(fig::steps(trace, {.tokens = kWords}));
  for (const auto& [name, tensor] : trace.steps()) {
    EXPECT_THAT(d.texts(), Contains(name));
    EXPECT_THAT(d.texts(), Contains(tensor.shape().str()));
  }
  EXPECT_THAT(d.texts(), Contains("0 … 0.89")) << "the inputs' range: none is below 0";
  EXPECT_THAT(d.texts(), Contains("journey"));
  EXPECT_EQ(note(d),
            "each step from 0, or its lowest below 0, to its largest; dark is low; head 1 of 2; masked hatched");
  EXPECT_NE(fig::steps(trace, {.head = 0}), fig::steps(trace, {.head = 1}));
}

TEST(Steps, TheFutureIsHatchedInEveryStepOfPairs) {
  // Scores, scaled, masked and weights, each with a future of five cells in its first row and one in its fifth.
  const Document d(fig::steps(two_heads(), {.tokens = kWords}));
  std::map<double, int> rows;
  for (const Element& e : d.all("rect")) {
    if (e.attributes.at("fill") == "url(#attn-masked)") ++rows[e.number("y")];
  }
  EXPECT_EQ(rows.size(), 5u);
  for (const auto& [y, count] : rows) EXPECT_EQ(count, 4) << y;
}

TEST(Steps, NothingIsCutByTheEdge) {
  for (const std::int64_t tokens : {1, 6, 80}) {
    SCOPED_TRACE(tokens);
    Generator rng(123);
    MultiHeadAttention module({.d_in = 3, .d_out = 4, .num_heads = 2}, rng);
    Trace trace;
    module.AttentionLayer::forward(rng.rand({tokens, 3}), &trace);
    for (const char* title : {"", "A title"}) expect_inside(fig::steps(trace, {.title = title}));
  }
}

TEST(Steps, RefusesWhatIsNotThere) {
  const Trace trace = two_heads();
  expect_error(Error::Kind::argument, {"head from 0 to 1", "2"}, [&] { fig::steps(trace, {.head = 2}); });
  expect_error(Error::Kind::argument, {"layer from 0 to 0"}, [&] { fig::steps(trace, {.layer = 1}); });
  expect_error(Error::Kind::argument, {"item"}, [&] { fig::steps(trace, {.item = 1}); });
  expect_error(Error::Kind::shape, {"6 tokens", "1"}, [&] { fig::steps(trace, {.tokens = {"a"}}); });
  expect_error(Error::Kind::argument, {"weights"}, [&] { fig::steps(Trace{}); });
}

}  // namespace
}  // namespace attn::test
