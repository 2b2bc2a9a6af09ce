// Any figure of a trace: each is the one that its own function draws, or is refused by name.
#include <cmath>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

namespace fig = figure;

// Two layers of `heads` and `others` heads, of three tokens.
Trace two_layers(std::int64_t heads, std::int64_t others) {
  Trace trace;
  std::int64_t layer = 0;
  for (const std::int64_t count : {heads, others}) {
    Tensor weights = Tensor::zeros({count, 3, 3});
    for (std::int64_t i = 0; i < weights.numel(); ++i) {
      weights.data<float>()[i] = static_cast<float>(i % 7 + 1 + layer) / 30;
    }
    Tensor inputs = Tensor::zeros({3, 2});
    inputs.set({1, 1}, 2.0f + static_cast<float>(layer));
    const std::string prefix = "layers." + std::to_string(layer++);
    trace.record(prefix + ".inputs", inputs);
    trace.record(prefix + ".weights", weights);
  }
  return trace;
}

Tensor weights_of(const Trace& trace, int layer) { return trace["layers." + std::to_string(layer) + ".weights"]; }

void expect_refused(const Trace& trace, const fig::Choice& choice, const char* words) {
  try {
    fig::draw(trace, choice);
    ADD_FAILURE() << words;
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(words));
  }
}

TEST(Draw, IsWhatTheFiguresFunctionDraws) {
  const Trace trace = two_layers(2, 2);
  const std::vector<std::string> words{"a", "b", "c"};
  const std::vector<Tensor> both{weights_of(trace, 0), weights_of(trace, 1)};
  EXPECT_EQ(fig::draw(trace, {.tokens = words}), fig::heads(stack(both), {.tokens = words}));
  EXPECT_EQ(fig::draw(trace, {.tokens = words, .layer = 1}),
            fig::heads(both[1], {.title = "layer 2", .tokens = words}));
  EXPECT_EQ(fig::draw(trace, {.layer = 1, .head = 0, .scale = fig::Scale::log}),
            fig::heatmap(both[1].select(0, 0), {.title = "layer 2, head 1", .scale = fig::Scale::log}));
  EXPECT_EQ(fig::draw(trace, {.figure = "lines", .query = 2}), fig::lines(both[0], {.title = "layer 1", .query = 2}));
  EXPECT_EQ(fig::draw(trace, {.figure = "steps", .layer = 1, .colours = fig::Colours::grey}),
            fig::steps(trace, {.title = "layer 2, head 1", .layer = 1, .colours = fig::Colours::grey}));
  const std::vector<fig::Points> inputs{{"inputs", trace["layers.0.inputs"], words}};
  EXPECT_EQ(fig::draw(trace, {.figure = "space", .tokens = words}),
            fig::space(inputs, {.title = "layer 1", .arrows = false}));
}

TEST(Draw, HidesWhatIsMaskedAndNamesKeysByTheirOwnTokens) {
  Trace trace;
  trace.record("keys", Tensor::of({{1, 2}, {3, 4}}));
  trace.record("scores", Tensor::of({{1, 2}, {3, 4}}));
  trace.record("masked", Tensor::of({{1, -INFINITY}, {3, 4}}));
  trace.record("weights", Tensor::of({{1, 0}, {0.25f, 0.75f}}));
  const std::vector<std::string> words{"a", "b"}, others{"c", "d"};
  const auto drawn = [&](const char* step) {
    return fig::draw(trace, {.step = step, .tokens = words, .key_tokens = others});
  };
  EXPECT_THAT(drawn("scores"), testing::HasSubstr("a → d: masked</title>"));
  EXPECT_THAT(drawn("masked"), testing::HasSubstr("a → d: -inf</title>"));
  EXPECT_THAT(drawn("keys"), testing::AllOf(testing::HasSubstr(">c<"), testing::Not(testing::HasSubstr(">a<"))));
}

TEST(Draw, RefusesWhatIsNotThere) {
  const Trace trace = two_layers(2, 3);
  expect_refused(trace, {.figure = "pie"}, "figure among heatmap");
  expect_refused(trace, {.step = "dropped"}, "a step among inputs, weights; found \"dropped\"");
  expect_refused(trace, {.layer = 2}, "layer from 0 to 1; found 2");
  expect_refused(trace, {.layer = 0, .head = 2}, "head from 0 to 1; found 2");
  expect_refused(trace, {.figure = "space", .head = 1}, "head from 0 to 0; found 1");
  expect_refused(trace, {.item = 1}, "item from 0 to 0");
  expect_refused(trace, {}, "as many heads in every layer; found (2, 3, 3) in the first and (3, 3, 3) in another");
  expect_refused(trace, {.figure = "lines", .query = 3}, "query");
}

TEST(Draw, RefusesWhatTheFigureWouldPassOver) {
  const Trace trace = two_layers(2, 2);
  expect_refused(trace, {.figure = "steps", .step = "weights"}, "the figure \"steps\" uses; found step");
  expect_refused(trace, {.figure = "steps", .scale = fig::Scale::row}, "found scale");
  expect_refused(trace, {.figure = "arrows", .scale = fig::Scale::log}, "found scale");
  expect_refused(trace, {.figure = "space", .colours = fig::Colours::grey}, "found colours");
  expect_refused(trace, {.figure = "heads", .head = 0}, "found head");
  expect_refused(trace, {.query = 0}, "found query");
  expect_refused(trace, {.figure = "lines", .scale = fig::Scale::diverging}, "found diverging");
}

}  // namespace
}  // namespace attn::test
