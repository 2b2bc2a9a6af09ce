// A model of two layers of attention alone, whose weights are written down: a head that looks at the token before, and
// one that looks for what had a token like this one before it (Elhage et al. 2021; Olsson et al. 2022).
#include <numeric>

#include "experiment/helpers.hpp"

namespace attn::test {
namespace {

using Int = std::int64_t;

constexpr Int kVocab = 100, kPlaces = 200;
// The stream's parts: the token, its place, and what the two heads write.
constexpr Int kToken = 0, kPlace = kVocab, kBefore = kPlace + kPlaces, kAnswer = kBefore + kVocab;
constexpr Int kWidth = kAnswer + kVocab;
const double kW = static_cast<double>(kWidth);
const double kPart = std::sqrt(kW / 2);  // what RMSNorm makes of each part of a row of token and place, each 1

LanguageModelConfig config() {
  LanguageModelConfig c;
  c.vocab_size = kVocab, c.context_length = kPlaces, c.width = kWidth, c.inner_width = 1;
  c.heads = 1, c.head_dim = kPlaces, c.layers = {{0, {}}, {0, {}}};
  c.learned_positions = true, c.attention_scale = 1, c.epsilon = 1e-12;
  return c;
}

// Layer 0: the query of place i is the key of place i - 1; the token that is found there is written to kBefore. Layer
// 1: the query of a token is the key of what has it before, and is not it; that token is written to kAnswer, which the
// head reads. Token 0 of a text has itself before.
class Induction : public testing::Test {
 protected:
  void SetUp() override {
    for (Parameter* p : model_.parameters()) p->value.fill(p->name.find("norm") == std::string::npos ? 0 : 1);
    for (Int i = 0; i < kPlaces; ++i) {
      model_.positions.value.set({i, kPlace + i}, 1);
      matrix(0, "k").set({i, kPlace + i}, 1);
      if (i > 0) matrix(0, "q").set({i - 1, kPlace + i}, 1);
    }
    for (Int i = 0; i < kVocab; ++i) {
      model_.embedding.value.set({i, kToken + i}, 1), model_.lm_head.value.set({i, kAnswer + i}, 1);
      matrix(0, "v").set({i, kToken + i}, 1), matrix(0, "o").set({kBefore + i, i}, 1);
      matrix(1, "q").set({i, kToken + i}, 1);
      matrix(1, "k").set({i, kBefore + i}, 1), matrix(1, "k").set({i, kToken + i}, -kPart);
      matrix(1, "v").set({i, kToken + i}, 1), matrix(1, "o").set({kAnswer + i, i}, 1);
    }
    // A permutation of all tokens, twice.
    for (Int i = 0; i < 2 * kVocab; ++i) text_.push_back(i % kVocab * 37 % kVocab);
    ids_ = integers(text_);
  }
  Tensor& matrix(std::size_t layer, const std::string& name) {
    for (Parameter* p : model_.blocks[layer]->attention.parameters()) {
      if (p->name.ends_with(name + "_proj.weight")) return p->value;
    }
    throw std::out_of_range(name);
  }
  Tensor losses(const Edits& edits) { return token_losses(model_.forward(ids_, {.edits = edits}), ids_); }

  LanguageModel model_{config()};
  std::vector<Int> text_;
  Tensor ids_;
};

TEST_F(Induction, HeadsHaveTheirScores) {
  const HeadScores scores = head_scores(model_, ids_);
  EXPECT_GT(scores.previous.at({0, 0}), 0.99);
  EXPECT_GT(scores.induction.at({1, 0}), 0.99);
  for (const Tensor* other : {&scores.induction, &scores.duplicate}) EXPECT_LT(other->at({0, 0}), 0.01);
  EXPECT_LT(scores.previous.at({1, 0}), 0.1);
  EXPECT_LT(scores.duplicate.at({1, 0}), 0.01);
}

TEST_F(Induction, LossOfTheSecondReadingIsAsComputed) {
  // A row is token, place and kPart · the token before; layer 1 takes a token, 1 / its rms, and the last norm follows.
  const double before = 2 + kPart * kPart, answer = 1 / std::sqrt(before / kW);
  const double logit = answer / std::sqrt((before + answer * answer) / kW);
  const double expected = std::log(std::exp(logit) + static_cast<double>(kVocab - 1)) - logit;
  const Tensor whole = losses({}), no_induction = losses({without({1, 0})}), no_previous = losses({without({0, 0})});
  for (Int i = kVocab; i + 1 < 2 * kVocab; ++i) {
    EXPECT_NEAR(whole.at({i}), expected, 1e-5) << i;
    EXPECT_NEAR(no_induction.at({i}), std::log(static_cast<double>(kVocab)), 1e-5) << i;  // all logits are 0
    // Without what is before it, layer 1 takes the mean of all tokens so far but those that are this one.
    std::vector<double> answers(static_cast<std::size_t>(kVocab));
    for (Int j = 0; j <= i; ++j) {
      const Int token = text_[static_cast<std::size_t>(j)];
      if (token != text_[static_cast<std::size_t>(i)])
        answers[static_cast<std::size_t>(token)] += kPart / static_cast<double>(i - 1);
    }
    double squares = 2, sum = 0;
    for (const double x : answers) squares += x * x;
    for (const double x : answers) sum += std::exp(x / std::sqrt(squares / kW));
    const double target = answers[static_cast<std::size_t>(text_[static_cast<std::size_t>(i) + 1])];
    EXPECT_NEAR(no_previous.at({i}), std::log(sum) - target / std::sqrt(squares / kW), 1e-5) << i;
    EXPECT_GT(no_previous.at({i}), expected + 1) << i;
  }
}

TEST_F(Induction, AttributionAndEffectsNameTheInductionHead) {
  const Int wanted = text_[static_cast<std::size_t>(kVocab) + 1];  // what the induction head has found there
  const Attribution parts = attribution(model_, ids_, wanted, {}, kVocab);
  EXPECT_NEAR(parts.sum, parts.logit, 1e-5);
  EXPECT_EQ(parts.heads.at({0, 0}), 0);  // the head does not read what layer 0 writes
  const Effects effects = head_effects(model_, ids_);
  EXPECT_GT(effects.after.at({0, 0}), effects.before + 0.5);  // about half of the tokens are of the second reading
  EXPECT_GT(effects.after.at({1, 0}), effects.before + 0.5);
}

}  // namespace
}  // namespace attn::test
