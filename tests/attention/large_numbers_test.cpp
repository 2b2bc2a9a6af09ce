// Finite numbers whose products and sums leave float32's range, against the oracle. The whole program runs once for
// every instruction set.
#include <limits>

#include "attention/tiles.hpp"
#include "attn/attention.hpp"

namespace attn::test {
namespace {

constexpr double kMost = std::numeric_limits<float>::max();

void expect_as_the_oracle(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                          const Tensor& d_output = {}) {
  const oracle::Problem p = oracle::problem_of(q, k, v, options);
  const AttentionResult found = attention(q, k, v, options);
  expect_truth(p, found);
  expect_finite(found.output, "output");
  if (d_output.defined()) expect_truth(p, d_output, attention_backward(d_output, q, k, v, options, found));
}

TEST(LargeNumbers, ABiasOfTheLeastFloatHidesNothing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tq : {1, 3, 70}) {
      std::mt19937 rng(1);
      const Tensor q = uniform(rng, {1, 2, tq, 16}, dtype), k = uniform(rng, {1, 2, 150, 16}, dtype),
                   v = uniform(rng, {1, 2, 150, 16}, dtype), g = uniform(rng, {1, 2, tq, 16}, dtype);
      const Tensor bias = Tensor::zeros({tq, 150});
      bias.select(0, tq / 2).fill(-kMost);  // what PyTorch's finfo.min makes of a padded query
      bias.slice(1, 100, 150).fill(-kMost);
      expect_as_the_oracle(q, k, v, {.mask = Mask::additive(bias)}, g);
    }
  }
}

// 3e38 in units of log2 is past the range, and -inf + inf is NaN.
TEST(LargeNumbers, ABiasPastTheRangeDoesNotShowWhatAScoreFunctionHides) {
  const auto hides = [](std::int64_t i, std::int64_t j) { return (i + j) % 3 == 0; };
  AttentionOptions options, plain;
  options.score_function =
      ScoreFunction::elementwise([&](auto s, std::int64_t, std::int64_t, std::int64_t i,
                                     std::int64_t j) { return hides(i, j) ? -kInf : static_cast<double>(s); },
                                 [](auto...) { return 1.0; });
  options.relative_bias = {Tensor::zeros({4, 1}), false, 8};
  plain = options;
  Tensor bias = Tensor::zeros({40, 50});
  for (std::int64_t i = 0; i < 40; ++i) bias.set({i, (3 - i % 3) % 3}, 3e38);
  options.mask = Mask::additive(bias);
  std::mt19937 rng(3);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor in[4];
    for (Tensor& t : in) t = uniform(rng, {1, 1, &t == &in[0] || &t == &in[3] ? 40 : 50, 16}, dtype);
    const auto grad_of = [&](const AttentionOptions& o) { return attention_backward(in[3], in[0], in[1], in[2], o); };
    const AttentionGradient found = grad_of(options), expected = grad_of(plain);
    const double most = dtype == DType::f32 ? 1e-5 : 0.05;
    expect_close(found.q, expected.q, most, "dq", 1);
    expect_close(found.k, expected.k, most, "dk", 1);
    expect_close(found.v, expected.v, most, "dv");
    // The same by distance: a query's own key and those behind it are in bucket 0, and the function hides these.
    AttentionOptions by_distance = plain;
    by_distance.relative_bias.table = tensor({3e38, 0, 0, 0}, {4, 1}, DType::f32);
    by_distance.score_function =
        ScoreFunction::elementwise([](auto s, std::int64_t, std::int64_t, std::int64_t i,
                                      std::int64_t j) { return j >= i ? -kInf : static_cast<double>(s); },
                                   [](auto...) { return 1.0; });
    const AttentionGradient near = grad_of(by_distance);
    expect_finite(near.q, "dq"), expect_finite(near.k, "dk"), expect_finite(near.v, "dv");
  }
}

TEST(LargeNumbers, ScoresThatOverflowHideNoOthers) {
  std::mt19937 rng(2);
  Tensor q = uniform(rng, {1, 1, 40, 8}, DType::f32), k = uniform(rng, {1, 1, 90, 8}, DType::f32);
  const Tensor v = uniform(rng, {1, 1, 90, 8}, DType::f32);
  // The score of key 30 is 1e39 - 2e39 = -1e39: terms and sum overflow float32.
  q.slice(3, 0, 2).fill(1e20), k.slice(3, 0, 2).fill(0);
  k.set({0, 0, 30, 0}, 1e19), k.set({0, 0, 30, 1}, -2e19);
  const AttentionOptions options{.scale = 1};
  const Tensor found = attention(q, k, v, options).output;
  AttentionOptions without = options;
  without.mask.keep = Tensor::full({90}, 1, DType::boolean);
  without.mask.keep.set({30}, 0);
  expect_close(found, attention(q, k, v, without).output, 1e-5, "output");
}

TEST(LargeNumbers, AreAveragedAndCapped) {
  for (const std::int64_t tq : {1, 4, 60}) {
    std::mt19937 rng(3);
    const Tensor q = uniform(rng, {1, 2, tq, 8}, DType::f32), k = uniform(rng, {1, 1, 300, 8}, DType::f32),
                 v = uniform(rng, {1, 1, 300, 8}, DType::f32, 2e38, 3.4e38);
    expect_as_the_oracle(q, k, v, {});
    expect_as_the_oracle(q, k, v, {.mask = Mask::causal(Align::bottom_right)});
    const Tensor huge = uniform(rng, {1, 2, tq, 8}, DType::f32, -3e38, 3e38),
                 some = uniform(rng, k.shape(), DType::f32);
    for (const double scale : {1.0, 1e200, 1e-30}) {
      expect_as_the_oracle(huge, k, some, {.scale = scale, .softcap = 20});
      expect_as_the_oracle(huge, k, some, {.scale = scale});
    }
    expect_as_the_oracle(huge, uniform(rng, k.shape(), DType::f32, -3e38, 3e38), some, {.softcap = 20});
  }
}

TEST(LargeNumbers, ASinkOfTheLeastFloatIsTheLogSumExpOfNothing) {
  std::mt19937 rng(4);
  for (const std::int64_t tq : {2, 40}) {
    const Tensor q = uniform(rng, {1, 2, tq, 8}, DType::f32), k = uniform(rng, {1, 2, 20, 8}, DType::f32);
    AttentionOptions options{.sinks = tensor({-3e38, 3e38}, {2}, DType::f32)};
    expect_as_the_oracle(q, k, k, options);
    options.mask = Mask::boolean(Tensor::zeros({1}, DType::boolean));
    expect_as_the_oracle(q, k, k, options);
  }
}

// Dropout doubles 60,000, which float16 does not hold.
TEST(LargeNumbers, AnOutputPastItsRangeIsTheLargest) {
  const Tensor q = Tensor::ones({1, 1, 40, 8}, DType::f16), v = Tensor::full({1, 1, 40, 8}, 60000, DType::f16);
  const AttentionOptions options{.dropout = 0.5, .dropout_keep = Tensor::ones({1}, DType::boolean)};
  for (const double x : values(attention(q, q, v, options).output)) EXPECT_EQ(x, 65504);
}

TEST(LargeNumbers, OfAQueryMeetSmallOnesOfAKey) {
  std::mt19937 rng(6);
  for (const double scale : {0.25, 1.0}) {
    Tensor q = uniform(rng, {1, 1, 5, 14}, DType::f32), k = uniform(rng, {1, 1, 40, 14}, DType::f32, 0.01, 0.2);
    q.select(3, 0).fill(-3e38);
    k.set({0, 0, 7, 3}, 3e38);  // whose score overflows
    expect_as_the_oracle(q, k, k, {.mask = Mask::causal(), .scale = scale});
  }
}

// The scale makes the large number infinite, and its products with the keys' zeros NaN.
TEST(LargeNumbers, OfAQueryLeaveItsSmallOnes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tq : {1, 40}) {
      std::mt19937 rng(8);
      const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 2, t, 14}, dtype); };
      const Tensor q = draw(tq), v = draw(70), g = draw(tq);
      Tensor k = draw(70);
      q.select(3, 0).fill(3e38), k.select(3, 0).fill(0);
      k.set({0, 0, 69, 0}, 1), k.set({0, 1, 0, 0}, -1);
      for (const double softcap : {0.0, 1e-3, 30.0}) {
        expect_as_the_oracle(q, k, v, {.mask = Mask::causal(), .scale = -500, .softcap = softcap}, g);
      }
    }
  }
}

TEST(LargeNumbers, AndSmallOnesAreSoftcaps) {
  std::mt19937 rng(9);
  const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 2, t, 8}, DType::f32); };
  const Tensor q = draw(30), k = draw(50), v = draw(50), g = draw(30);
  for (const double softcap : {0x1p-64, 0x1p64}) expect_as_the_oracle(q, k, v, {.softcap = softcap}, g);
}

// A bias of -inf at a distance hides a key from a query whose weights are NaN.
TEST(LargeNumbers, ABiasByDistanceHidesKeysFromNaN) {
  std::mt19937 rng(10);
  const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 2, t, 8}, DType::f32); };
  const Tensor q = draw(30), k = draw(30), v = draw(30), g = draw(30), table = uniform(rng, {8, 2}, DType::f32);
  table.select(0, 1).fill(-kInf);
  q.select(2, 9).fill(kNan);
  const AttentionOptions options{.relative_bias = {table, true, 20}};
  const AttentionGradient grad = attention_backward(g, q, k, v, options);
  for (std::int64_t h = 0; h < 2; ++h) {
    EXPECT_FALSE(std::isnan(grad.relative_bias.at({1, h})));  // a key in front
    EXPECT_TRUE(std::isnan(grad.relative_bias.at({0, h})));
    EXPECT_FALSE(std::isnan(grad.k.at({0, h, 8, 0})));
    EXPECT_TRUE(std::isnan(grad.k.at({0, h, 9, 0})));
  }
}

// The sum of -inf and inf is NaN. The scalar unit keeps it, as attention_on_scalar shows; vectors' exponentials drop
// it.
TEST(LargeNumbers, OfASlopeTimesADistanceSeeNoHiddenKey) {
  std::mt19937 rng(11);
  const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 1, t, 8}, DType::f32); };
  const Tensor q = draw(20), k = draw(20), v = draw(20), g = draw(20), bias = Tensor::zeros({20, 20});
  bias.slice(1, 0, 12).fill(-kInf);
  expect_as_the_oracle(q, k, v, {.mask = Mask::additive(bias), .alibi_slopes = tensor({-3e38}, {1}, DType::f32)}, g);
}

// 2.3e38 / 0.5 leaves float32's range, and float32's largest leaves bfloat16's.
TEST(LargeNumbers, OfAnOutputInFloat32GiveFiniteGradients) {
  const Tensor q = Tensor::zeros({1, 1, 2, 8}, DType::bf16), v = Tensor::full({1, 1, 2, 8}, 2.3e38, DType::bf16);
  const Tensor g = Tensor::full({1, 1, 2, 8}, 1e-30, DType::bf16);
  const AttentionOptions options{
      .dropout = 0.5, .dropout_keep = Tensor::ones({1}, DType::boolean), .output_dtype = DType::f32};
  const AttentionResult forward = attention(q, q, v, options);
  expect_finite(forward.output, "output");
  const AttentionGradient grad = attention_backward(g, q, q, v, options, forward);
  expect_finite(grad.q, "dq"), expect_finite(grad.v, "dv");
}

TEST(LargeNumbers, OfASlopeTakeNothingFromTheKeyAtADistanceOfZero) {
  std::mt19937 rng(7);
  const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 2, t, 8}, DType::f32); };
  for (const std::int64_t tq : {3, 40}) {
    AttentionOptions options;
    options.alibi_slopes = tensor({3e38, 0.5}, {2}, DType::f32);
    expect_as_the_oracle(draw(tq), draw(40), draw(40), options, draw(tq));
  }
}

// Float32 knows scores of 1e10 to about 1000 alone; the gradients compute weights once more from their log-sum-exp.
TEST(LargeNumbers, OfScoresGiveFiniteGradients) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool weights : {false, true}) {
      for_seeds(10, [&](std::mt19937& rng) {
        Tensor q = uniform(rng, {1, 2, 30, 24}, dtype, -1e5, 1e5), k = uniform(rng, {1, 2, 50, 24}, dtype, -1e6, 1e6);
        const Tensor v = uniform(rng, {1, 2, 50, 24}, dtype), g = uniform(rng, {1, 2, 30, 24}, dtype);
        AttentionOptions options{.return_weights = weights};
        const AttentionGradient grad = attention_backward(g, q, k, v, options, attention(q, k, v, options));
        expect_finite(grad.q, "dq"), expect_finite(grad.k, "dk"), expect_finite(grad.v, "dv");
      });
    }
  }
}

// A log-sum-exp near float32's end may be of other keys alone.
TEST(LargeNumbers, OfOtherKeysGiveNoGradient) {
  const Tensor q = Tensor::ones({1, 1, 2, 4}), k = Tensor::ones({1, 1, 3, 4});
  const AttentionOptions options{.mask = Mask::boolean(Tensor::zeros({1}, DType::boolean))};
  const AttentionResult whole{Tensor::ones(q.shape()), Tensor::full({1, 1, 2}, 3e38, DType::f32), {}};
  const AttentionGradient grad = attention_backward(q, q, k, k, options, whole);
  for (const Tensor& t : {grad.q, grad.k, grad.v}) {
    for (const double x : values(t)) EXPECT_EQ(x, 0);
  }
}

// The log-sum-exp of every row is past 2e38; in float64 that is a number like others. Keys 0 and 2 share the weights of
// some rows.
TEST(LargeNumbers, GiveFloat64sGradient) {
  for_seeds(40, [](std::mt19937& rng) {
    const std::int64_t tq = pick(rng, 1, 40), tk = tq + pick(rng, 2, 30);
    const Tensor q = uniform(rng, {1, 4, tq, 1}, DType::f32, 2.3e38, 3e38), v = uniform(rng, {1, 2, tk, 6}, DType::f32),
                 g = uniform(rng, {1, 4, tq, 6}, DType::f32, -0.01, 0.01);
    Tensor k = uniform(rng, {1, 2, tk, 1}, DType::f32, -0.9, 0.9), keep = booleans(rng, {tq, tk}, 0.7);
    k.slice(2, 0, 1).fill(1), k.slice(2, 2, 3).fill(1), keep.slice(1, 0, 1).fill(1);
    AttentionOptions options{.mask = Mask::causal(Align::bottom_right), .scale = 1};
    if (chance(rng, 0.3)) options.sinks = tensor({3.2e38, 1, 2, -3e38}, {4}, DType::f32);
    if (chance(rng, 0.3)) options.alibi_slopes = tensor({1, 1e35, 0, 1e30}, {4}, DType::f32);
    if (chance(rng, 0.3)) options.dropout = 0.25, options.dropout_keep = booleans(rng, {tq, tk}, 0.75);
    if (chance(rng, 0.5)) options.mask.keep = keep;
    if (chance(rng, 0.5)) options.mask.bias = uniform(rng, {tq, tk}, DType::f32, -1e37, 1e37);
    const AttentionGradient found = attention_backward(g, q, k, v, options);
    const auto wide = [](const Tensor& t) { return t.to(DType::f64); };
    const AttentionGradient wanted = attention_backward(wide(g), wide(q), wide(k), wide(v), options);
    expect_close(found.q, wanted.q.to(DType::f32), 1e-5, "dq", 1);
    expect_close(found.k, wanted.k.to(DType::f32), 1e-5, "dk", 1);
    expect_close(found.v, wanted.v.to(DType::f32), 1e-5, "dv");
    if (options.mask.bias.defined()) expect_close(found.bias, wanted.bias, 1e-5, "dbias", 1);
  });
}

TEST(LargeNumbers, OfAWeightThatWasDroppedReachNoGradient) {
  std::mt19937 rng(8);
  const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 1, t, 8}, DType::f32); };
  Tensor v = draw(20), keep = Tensor::ones({20}, DType::boolean);
  v.select(2, 5).fill(3e38), keep.set({5}, 0);
  const AttentionOptions options{.dropout = 0.25, .dropout_keep = keep};
  expect_as_the_oracle(draw(40), draw(20), v, options, Tensor::full({1, 1, 40, 8}, 3));
}

// Scores of -1e8 are known to no better than 8 in float32. Of few queries the forward pass sums them in another order,
// and weights of e^8 would be no weights.
TEST(LargeNumbers, WeightsOfScoresThatAreFarFromZeroAreAtMostOne) {
  for_seeds(20, [](std::mt19937& rng) {
    Tensor in[4];
    for (Tensor& t : in) t = uniform(rng, {1, 2, &t == &in[0] || &t == &in[3] ? 3 : 80, 16}, DType::f32);
    AttentionOptions options;
    options.alibi_slopes = uniform(rng, {2}, DType::f32, 0, 4);
    options.relative_bias = {uniform(rng, {8, 2}, DType::f32, -20, 20), true, 20};
    options.query_offset = pick(rng, std::int64_t{1} << 20, (std::int64_t{1} << 30) - 200);
    const AttentionGradient grad = attention_backward(in[3], in[0], in[1], in[2], options);
    // |d_score| <= 2 · |d_output · v| <= 2 · 16 for each of 80 keys, and scale is 1/4.
    for (const double x : values(grad.q)) EXPECT_LE(std::fabs(x), 80 * 2 * 16 / 4);
    for (const double x : values(grad.v)) EXPECT_LE(std::fabs(x), 3);
  });
}

}  // namespace
}  // namespace attn::test
