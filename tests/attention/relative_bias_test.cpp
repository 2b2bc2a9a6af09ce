// T5's biases by buckets of distances, on every unit, beside the oracle; what they forbid, and what does not fit.
#include <limits>

#include "attention/tiles.hpp"
#include "attn/kv_cache.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

using RelativeBiases = kernels::CallsOnUnits;

// Query heads that share a key head stand in one list: tiles hold the end of one and the beginning of the next.
Inputs biased_inputs(std::mt19937& rng, DType dtype) {
  Inputs in;
  Sizes& s = in.sizes = tile_sizes(rng);
  s.b = pick(rng, 1, 2), s.d = pick(rng, 1, 20), s.dv = pick(rng, 1, 20);
  if (chance(rng, 0.3)) s.tq = pick(rng, 5, 20), s.hq = 3 * s.hkv;
  in.q = uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype), in.k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype);
  in.v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype);
  AttentionOptions& o = in.options;
  o.relative_bias = random_relative_bias(rng, s.hq);
  o.mask.is_causal = chance(rng, 0.4);
  if (chance(rng, 0.3)) o.mask.window_left = pick(rng, 0, s.tk);
  if (chance(rng, 0.3)) o.mask.align = Align::bottom_right;
  if (chance(rng, 0.3)) o.softcap = 2;
  if (chance(rng, 0.3)) o.score_function = wavy_scores();
  if (chance(rng, 0.3)) o.alibi_slopes = uniform(rng, {s.hq}, DType::f32, 0, 0.1);
  if (chance(rng, 0.3)) o.mask.bias = uniform(rng, {1, s.tk}, DType::f32);
  if (chance(rng, 0.3)) o.dropout = 0.25, o.dropout_key = rng();
  if (chance(rng, 0.4)) add_offsets(rng, in);
  return in;
}

TEST_P(RelativeBiases, AgreeWithTheOracle) {
  for_seeds(30, [](std::mt19937& rng) {
    constexpr DType kDTypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16};
    const Inputs in = biased_inputs(rng, kDTypes[pick(rng, 0, 3)]);
    SCOPED_TRACE(describe(in) + " " + std::string(name(in.q.dtype())));
    const oracle::Problem p = oracle::problem_of(in.q, in.k, in.v, in.options);
    const Tensor g = uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv}, in.q.dtype());
    const AttentionResult found = attention(in.q, in.k, in.v, in.options);
    const AttentionGradient grad = attention_backward(g, in.q, in.k, in.v, in.options, found);
    expect_truth(p, found), expect_truth(p, g, grad);
    EXPECT_TRUE(grad.relative_bias.defined());
  });
}

TEST_P(RelativeBiases, OfACacheAgreeWithTheOracle) {
  for_seeds(12, [](std::mt19937& rng) {
    const std::int64_t hq = 4, tq = pick(rng, 1, 6), tk = pick(rng, tq, 700);
    const Tensor q = uniform(rng, {1, hq, tq, 16}, DType::f32);
    const Tensor k = uniform(rng, {1, 2, tk, 16}, DType::f32), v = uniform(rng, {1, 2, tk, 8}, DType::f32);
    KVCache cache({.kv_heads = 2, .head_dim = 16, .value_dim = 8, .page_size = pick(rng, 0, 2) * 16});
    cache.append(k, v);
    AttentionOptions options;
    options.mask = Mask::causal(Align::bottom_right);
    options.relative_bias = random_relative_bias(rng, hq);
    const oracle::Problem p = oracle::problem_of(q, k, v, options);
    EXPECT_EQ(oracle::difference(attention(q, cache, options).output, oracle::attention(p).output, p.roundoff, ""), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Kernels, RelativeBiases, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& instance) { return instance.param; });

TEST(RelativeBias, GradientsEqualFiniteDifferences) {
  for_seeds(10, [](std::mt19937& rng) {
    Inputs in = random_inputs(rng, DType::f64, 1);
    in.options.relative_bias = random_relative_bias(rng, in.sizes.hq, DType::f64);
    SCOPED_TRACE(describe(in));
    const Tensor g = uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv});
    const AttentionGradient grad = attention_backward(g, in.q, in.k, in.v, in.options);
    const auto loss = [&] { return dot(attention(in.q, in.k, in.v, in.options).output, g); };
    expect_gradient(grad.relative_bias, in.options.relative_bias.table, loss);
  });
}

TEST(RelativeBias, ABucketOfMinusInfinityIsForbidden) {
  std::mt19937 rng(3);
  const Tensor x = uniform(rng, {1, 2, 40, 8}, DType::f32);
  AttentionOptions biased, masked;
  biased.relative_bias.table = Tensor::zeros({8, 2});
  for (const std::int64_t head : {0, 1}) biased.relative_bias.table.set({1, head}, -kInf);  // one behind the query
  masked.mask.keep = Tensor::ones({40, 40}, DType::boolean);
  for (std::int64_t i = 1; i < 40; ++i) masked.mask.keep.set({i, i - 1}, 0);
  expect_close(attention(x, x, x, biased).output, attention(x, x, x, masked).output, tolerance(DType::f32), "output");
  const AttentionGradient found = attention_backward(x, x, x, x, biased), want = attention_backward(x, x, x, x, masked);
  expect_close(found.q, want.q, tolerance(DType::f32), "dq", 1);
  EXPECT_EQ(found.relative_bias.at({1, 0}), 0);
}

TEST(RelativeBias, WhatDoesNotFitIsRefused) {
  const Tensor x = Tensor::ones({1, 2, 3, 4});
  const auto refuse = [&](Error::Kind kind, const char* part, const RelativeBias& bias) {
    expect_error(kind, {"[attention]", part}, [&] { attention(x, x, x, {.relative_bias = bias}); });
  };
  const Tensor table = Tensor::ones({8, 2});
  refuse(Error::Kind::dtype, "floating", {table.to(DType::i64)});
  refuse(Error::Kind::shape, "(buckets, hq)", {Tensor::ones({8, 3})});
  refuse(Error::Kind::shape, "(buckets, hq)", {Tensor::ones({8})});
  refuse(Error::Kind::argument, "at least 4 buckets", {Tensor::ones({3, 2})});
  refuse(Error::Kind::argument, "at least 2 buckets", {Tensor::ones({1, 2}), false});
  refuse(Error::Kind::argument, "at least 4 buckets", {Tensor::ones({0, 2})});
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t distance : {std::int64_t{2}, std::int64_t{-1}, std::int64_t{1} << 21, most, -most - 1}) {
    refuse(Error::Kind::argument, "max_distance past 2, and at most 2^20", {table, true, distance});
  }
  expect_error(Error::Kind::argument, {"[relative_bucket]"}, [] { relative_bucket(1, 2, true); });
  EXPECT_EQ(relative_bucket(most, 32, true), 31);
  EXPECT_EQ(relative_bucket(-most - 1, 32, true), 15);
  EXPECT_EQ(relative_bucket(most, 32, false), 0);
  EXPECT_EQ(relative_bucket(-most - 1, 32, false), 31);
}

}  // namespace
}  // namespace attn::test
