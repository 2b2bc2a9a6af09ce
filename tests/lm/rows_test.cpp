// Many rows, which are cut into tasks, the last of them short: every row and every sum over rows is the definition's.
#include "core/rows.hpp"

#include "attn/cross_entropy.hpp"
#include "attn/generate.hpp"
#include "lm/gpt_double.hpp"

namespace attn::test {
namespace {

TEST(Rows, LayerNormsGradientsAreSumsOverAllTasks) {
  constexpr std::int64_t rows = 700, width = 21;
  std::mt19937 rng(1);
  const Tensor x = uniform(rng, {rows, width}, DType::f32), dy = uniform(rng, {rows, width}, DType::f32);
  LayerNorm norm(width);
  norm.weight.value = uniform(rng, {width}, DType::f32), norm.bias.value = uniform(rng, {width}, DType::f32);
  const Tensor y = norm.forward(x);
  const auto wide = [](const Tensor& t) { return t.to(DType::f64); };
  expect_close(y, layer_norm_double(wide(x), wide(norm.weight.value), wide(norm.bias.value), 1e-5), 2e-6, "output");
  norm.backward(dy);
  const Tensor normal =
      layer_norm_double(wide(x), Tensor::ones({width}, DType::f64), Tensor::zeros({width}, DType::f64), 1e-5);
  for (std::int64_t c = 0; c < width; ++c) {
    double weight = 0, bias = 0;
    for (std::int64_t r = 0; r < rows; ++r) weight += dy.at({r, c}) * normal.at({r, c}), bias += dy.at({r, c});
    EXPECT_NEAR(norm.weight.grad.at({c}), weight, 1e-4) << c;
    EXPECT_NEAR(norm.bias.grad.at({c}), bias, 1e-4) << c;
  }
}

TEST(Rows, CrossEntropyOfARaggedVocabularyAndRows) {
  for (const auto& [rows, vocab] : {std::pair{37, 41}, {16, 7}, {50, 129}}) {
    std::mt19937 rng(2);
    Tensor logits = uniform(rng, {rows, vocab}, DType::f32, -8, 8), gradient = logits.clone();
    Tensor targets = Tensor::empty({rows}, DType::i64);
    for (std::int64_t r = 0; r < rows; ++r) {
      targets.data<std::int64_t>()[r] = r % 5 == 3 ? -100 : r % 2 == 0 ? vocab - 1 : pick(rng, 0, vocab - 1);
      // The largest at the end, where vectors do not reach.
      if (r % 3 == 0) logits.set({r, vocab - 1}, 30), gradient.set({r, vocab - 1}, 30);
    }
    const CrossEntropy found = cross_entropy_in_place(gradient, targets, 0.5);
    double loss = 0;
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t target = targets.data<std::int64_t>()[r];
      double sum = 0;
      for (std::int64_t c = 0; c < vocab; ++c) sum += std::exp(logits.at({r, c}));
      if (target != -100) loss += std::log(sum) - logits.at({r, target}), ++count;
      for (std::int64_t c = 0; c < vocab; ++c) {
        const double want = target == -100 ? 0 : 0.5 * (std::exp(logits.at({r, c})) / sum - (c == target ? 1 : 0));
        ASSERT_NEAR(gradient.at({r, c}), want, 1e-6) << r << ", " << c << " of " << vocab;
      }
    }
    EXPECT_EQ(found.count, count);
    EXPECT_NEAR(found.loss, loss / static_cast<double>(count), 1e-5);
    EXPECT_NEAR(cross_entropy(logits, targets).loss, found.loss, 1e-12);
    targets.data<std::int64_t>()[0] = vocab;
    expect_error(Error::Kind::argument, {"targets in [0, "}, [&] { cross_entropy(logits, targets); });
  }
}

// Finite sums stay finite, with their sign.
TEST(Rows, SumsSaturate) {
  constexpr float most = std::numeric_limits<float>::max(), inf = std::numeric_limits<float>::infinity();
  for (const auto& [a, b, want] : {std::array{most, most, most},
                                   {-most, -most, -most},
                                   {most, -most, 0.f},
                                   {inf, -most, inf},
                                   {-inf, most, -inf},
                                   {-inf, -most, -inf},
                                   {1.f, 2.f, 3.f}}) {
    Tensor to = Tensor::ones({1500}), from = Tensor::ones({1500});
    to.set({1400}, a), from.set({1400}, b);
    add_in_place(to, from);
    EXPECT_EQ(to.at({1400}), want) << a << " + " << b;
    EXPECT_EQ(to.at({0}), 2);
    EXPECT_EQ(to.at({1499}), 2);
  }
}

// The token that reaches the mass is the last that stays.
TEST(Sampling, TheNucleusEndsWhereItsMassIsReached) {
  const Tensor equal = Tensor::zeros({4});
  for (const auto& [mass, count] : {std::pair{0.25, 1}, {0.5, 2}, {0.51, 3}, {0.75, 3}, {1.0, 4}}) {
    EXPECT_EQ(candidates(equal, {.top_p = mass}).size(), static_cast<std::size_t>(count)) << mass;
  }
  EXPECT_EQ(candidates(equal, {.top_p = 0.5})[0].id, 0) << "of equal ones the lower id";
  EXPECT_EQ(candidates(equal, {.top_p = 0.5})[1].id, 1);
}

// Transformers' warpers keep ids 0 to 2 for top_k 2, and by a sort ids 1 and 2 for top_p 0.5 (run with 5.24).
TEST(Sampling, OfEqualLogitsTheLowerIdsAreKept) {
  const auto ids = [](const Sampling& sampling) {
    std::vector<std::int64_t> kept;
    for (const Candidate& c : candidates(Tensor::of({1, 1, 1, 0}), sampling)) kept.push_back(c.id);
    std::sort(kept.begin(), kept.end());
    return kept;
  };
  EXPECT_EQ(ids({.top_k = 1}), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(ids({.top_k = 2}), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(ids({.top_p = 0.5}), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(ids({.min_p = 1}), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(ids({.temperature = 0}), (std::vector<std::int64_t>{0}));
}

TEST(Sampling, WhatIsImpossibleIsNotDrawnByAZero) {
  Generator zeros(1);
  zeros.set_state(Tensor::zeros(zeros.state().shape(), DType::i64));
  EXPECT_EQ(sample(Tensor::of({-INFINITY, 2}), {}, zeros), 1);
  EXPECT_EQ(zeros.next_u64(), 0u);
}

}  // namespace
}  // namespace attn::test
