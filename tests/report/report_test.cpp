// The page as text: what it holds, what it refuses, and that nothing but its own script may run. How it behaves is
// tested in a browser (tests/report/browser).
#include "attn/report.hpp"

#include <gmock/gmock.h>

#include <random>
#include <regex>

#include "attn/error.hpp"
#include "core/testing.hpp"
#include "report/html/encode.hpp"
#include "report/html/json.hpp"
#include "report/html/scores.hpp"
#include "report/pca.hpp"
#include "report/utf8.hpp"

namespace attn::test {
namespace {

using testing::HasSubstr;
using testing::Not;

Trace six_words() {
  Trace steps;
  Generator rng(123);
  MultiHeadAttention module({.d_in = 3, .d_out = 4, .num_heads = 2}, rng);
  module.ProjectedAttention::forward(Generator(7).rand({6, 3}), &steps);
  return steps;
}

Trace weights_only(const Shape& shape) {
  Trace steps;
  steps.record("weights", Tensor::full(shape, 1.0 / static_cast<double>(std::max<std::int64_t>(shape.back(), 1))));
  return steps;
}

std::string message_of(const Trace& trace, const ReportOptions& options = {}) {
  try {
    report(trace, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Report, IsTheSameForTheSameTrace) {
  const std::string page = report(six_words());
  EXPECT_EQ(page, report(six_words()));
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, testing::EndsWith("</html>\n"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

TEST(Report, AllowsNoNetworkAndNoScriptButItsOwn) {
  const std::string page = report(six_words());
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe-inline")));
  EXPECT_FALSE(std::regex_search(page.substr(0, page.find("<style>")), std::regex("(src|href)=")));
}

TEST(Report, TokensStayText) {
  const std::string evil = "</script><script>alert(1)</script>";
  const std::string page =
      report(weights_only({1, 2, 2}), {.tokens = {evil, "\"&<>\x01\xff"}, .command = evil, .notes = {evil}});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script\\u003e\\u003cscript\\u003ealert(1)"));
  EXPECT_THAT(page, HasSubstr("\\u0022\\u0026\\u003c\\u003e\\u0001\\u005cxFF"));
}

TEST(Report, WantsWeightsThatFit) {
  EXPECT_THAT(message_of(Trace()), HasSubstr("a trace with the step \"weights\"; found an empty one"));
  EXPECT_THAT(message_of(weights_only({5})), HasSubstr("weights (heads, queries, keys); found (5,)"));
  EXPECT_THAT(message_of(weights_only({1, 3, 3}), {.tokens = {"a", "b"}}),
              HasSubstr("3 tokens, one for each row; found 2"));
  EXPECT_THAT(message_of(weights_only({2, 1, 3, 3}), {.item = 2}), HasSubstr("item from 0 to 1; found 2"));
  Trace odd = weights_only({2, 3, 3});
  odd.record("queries", Tensor::zeros({2, 4, 5}));
  EXPECT_THAT(message_of(odd), HasSubstr("queries that fit the weights (2, 3, 3)"));
  Trace layers;
  layers.record("a.weights", Tensor::ones({1, 2, 2}));
  layers.record("b.weights", Tensor::ones({1, 3, 3}));
  EXPECT_THAT(message_of(layers), HasSubstr("layers of one shape (1, 2, 2)"));
}

TEST(Report, TakesEveryShapeOfWeights) {
  for (const Shape& shape :
       {Shape{0, 0}, Shape{1, 1}, Shape{3, 4, 7}, Shape{2, 3, 4, 4}, Shape{1, 200, 130}, Shape{0, 2, 2}}) {
    SCOPED_TRACE(shape.str());
    if (shape.numel() == 0 && shape[0] == 0 && shape.size() == 3) continue;
    EXPECT_THAT(report(weights_only(shape)), HasSubstr("\"blocks\":["));
  }
}

TEST(Report, ChecksWhatItShows) {
  EXPECT_THAT(report(six_words()), Not(HasSubstr("\"holds\":false")));
  Trace leaking = weights_only({1, 2, 2});
  leaking.record("masked", Tensor::of({{1, -INFINITY}, {1, 1}}).unsqueeze(0));
  EXPECT_THAT(report(leaking), HasSubstr("{\"name\":\"mask leak\",\"holds\":false,\"value\":0.5"));
  Trace nan;
  nan.record("weights", Tensor::of({{NAN, 1}, {0.5, 0.6f}}));
  EXPECT_THAT(report(nan), HasSubstr("{\"name\":\"rows sum to 1\",\"holds\":false"));
  EXPECT_THAT(report(nan), HasSubstr("{\"name\":\"no NaN\",\"holds\":false,\"value\":1"));
  Trace wrong;
  wrong.record("scaled", Tensor::of({{0, 1}, {2, 3}}));
  wrong.record("weights", Tensor::of({{0.5, 0.5}, {0.5, 0.5}}));
  EXPECT_THAT(report(wrong), HasSubstr("{\"name\":\"difference from float64\",\"holds\":false,\"value\":0.231"));
}

// Scores that are changed on their way are no error of the weights: each alone, and all together.
TEST(Report, ChecksFollowEveryStepOfTheScores) {
  std::mt19937 rng(5);
  const std::int64_t t = 6;
  Tensor q = Tensor::empty({1, 2, t, 4}), bias = Tensor::empty({t, t});
  std::normal_distribution<float> normal(0, 3);
  for (Tensor* x : {&q, &bias}) {
    for (std::int64_t i = 0; i < x->numel(); ++i) x->data<float>()[i] = normal(rng);
  }
  const ScoreFunction half = ScoreFunction::elementwise([](auto score, auto...) { return score / 2; });
  const Tensor slopes = Tensor::of({0.5f, 1});
  const std::pair<const char*, AttentionOptions> cases[] = {
      {"capped", {.softcap = 1}},
      {"scored", {.score_function = half}},
      {"biased", {.mask = Mask::additive(bias)}},
      {"alibi", {.alibi_slopes = slopes}},
      {"masked", {.mask = Mask::causal(), .softcap = 1}},
      {"masked",
       {.mask = Mask::causal() & Mask::additive(bias), .softcap = 1, .score_function = half, .alibi_slopes = slopes}}};
  for (const auto& [step, options] : cases) {
    SCOPED_TRACE(step);
    Trace trace;
    attention(q, q, q, options, &trace);
    const std::string page = report(trace);
    EXPECT_THAT(page, HasSubstr("\"name\":\"" + std::string(step) + "\""));
    EXPECT_THAT(page, HasSubstr("{\"name\":\"difference from float64\",\"holds\":true"));
    EXPECT_THAT(page, Not(HasSubstr("\"holds\":false")));
  }
}

TEST(Report, Base64IsRfc4648) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [text, wanted] : vectors) {
    EXPECT_EQ(report_page::base64(std::as_bytes(std::span(text.data(), text.size()))), wanted);
  }
}

TEST(Report, NamesBytesThatAreNoUtf8) {
  EXPECT_EQ(valid_utf8("ä€😀"), "ä€😀");
  EXPECT_EQ(valid_utf8("a\xC0\xAF"), "a\\xC0\\xAF");                    // overlong
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), "\\xED\\xA0\\x80");             // a surrogate
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80x"), "\\xF4\\x90\\x80\\x80x");  // past the last code point
  EXPECT_EQ(valid_utf8("\xE2\x82"), "\\xE2\\x82");                      // cut off
  EXPECT_EQ(valid_utf8(std::string("\0", 1)), std::string("\0", 1));
}

// Axes are orthonormal eigenvectors of the covariance, and explain what they should.
TEST(Report, PrincipalAxes) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t n = pick(rng, 2, 40), d = pick(rng, 4, 12);
    Tensor x = Tensor::empty({n, d}, DType::f64);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < d; ++k) x.set({i, k}, normal(rng) * std::pow(0.6, static_cast<double>(k)) + 3);
    }
    const auto [axes, explained] = report_page::principal_axes(x);
    std::vector<double> mean(static_cast<std::size_t>(d));
    for (std::int64_t k = 0; k < d; ++k) {
      for (std::int64_t i = 0; i < n; ++i) mean[static_cast<std::size_t>(k)] += x.at({i, k}) / static_cast<double>(n);
    }
    double total = 0;
    const auto centred = [&](std::int64_t i, std::int64_t k) {
      return x.at({i, k}) - mean[static_cast<std::size_t>(k)];
    };
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < d; ++k) total += centred(i, k) * centred(i, k);
    }
    for (std::int64_t a = 0; a < std::min<std::int64_t>(3, n - 1); ++a) {
      const double eigenvalue = explained[static_cast<std::size_t>(a)] * total;
      double length = 0;
      for (std::int64_t k = 0; k < d; ++k) {
        double image = 0;  // row k of the covariance times the axis
        for (std::int64_t i = 0; i < n; ++i) {
          double along = 0;
          for (std::int64_t m = 0; m < d; ++m) along += centred(i, m) * axes.at({m, a});
          image += centred(i, k) * along;
        }
        EXPECT_NEAR(image, eigenvalue * axes.at({k, a}), 1e-4 * total) << "axis " << a;
        length += axes.at({k, a}) * axes.at({k, a});
      }
      EXPECT_NEAR(length, 1, 1e-9);
      if (a > 0) {
        EXPECT_LE(explained[static_cast<std::size_t>(a)], explained[static_cast<std::size_t>(a - 1)]);
      }
    }
  });
}

TEST(Report, HeadScores) {
  const auto uniform = report_page::head_scores(Tensor::full({4, 4}, 0.25));
  EXPECT_NEAR(uniform.entropy, std::log(4.0), 1e-12);
  EXPECT_NEAR(uniform.distance, 1.25, 1e-12);
  EXPECT_NEAR(uniform.first, 0.25, 1e-12);
  EXPECT_NEAR(uniform.diagonal, 0.25, 1e-12);
  const auto own = report_page::head_scores(Tensor::of({{1, 0, 0}, {0, 1, 0}, {0, 0, 0}}));  // the last row sees no key
  EXPECT_EQ(own.entropy, 0);
  EXPECT_EQ(own.first, 0.5);
  EXPECT_EQ(own.diagonal, 1);
}

}  // namespace
}  // namespace attn::test
