// The fused path with every option, at sizes that fill and overrun the kernels' tiles, against the composed steps,
// whose oracle forward_test.cpp is. The whole program runs once for every instruction set.
#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attention/tiles.hpp"
#include "attn/attention.hpp"
#include "attn/random.hpp"
#include "random/philox.hpp"

namespace attn::test {
namespace {

class Fused : public testing::TestWithParam<DType> {};

TEST_P(Fused, EqualsTheComposedSteps) {
  for_seeds(40, [](std::mt19937& rng) {
    const Inputs in = tile_inputs(rng, GetParam());
    SCOPED_TRACE(describe(in));
    const AttentionResult found = attention(in.q, in.k, in.v, in.options), expected = exact(in);
    expect_close(found.output, expected.output, tolerance(GetParam()), "output");
    expect_close(found.lse, expected.lse, tolerance(GetParam()), "lse");
    ASSERT_EQ(found.weights.defined(), expected.weights.defined());
    if (found.weights.defined()) expect_close(found.weights, expected.weights, tolerance(GetParam()), "weights");
  });
}

// One key's score is above the others', which are 2^8 times a sink that is no whole number of log2: a maximum that
// rises for it takes along the weights that were made before.
TEST(HighPrecision, HoldsWhereTheMaximumRisesAboveASink) {
  for_seeds(20, [](std::mt19937& rng) {
    const Tensor q = Tensor::ones({1, 1, 8, 32}), v = uniform(rng, {1, 1, 64, 32}, DType::f32, 0.5, 1);
    Tensor k = uniform(rng, {1, 1, 64, 32}, DType::f32, 0.178, 0.184);  // scores of 8.2 to 8.5
    k.slice(2, 40, 41).fill(0.2014);                                    // 9.3
    AttentionOptions options;
    options.scale = 1;
    options.precision = Precision::high;
    options.sinks = uniform(rng, {1}, DType::f32, 0.45, 0.65);
    const AttentionResult found = attention(q, k, v, options);
    const AttentionResult expected = attention(q.to(DType::f64), k.to(DType::f64), v.to(DType::f64), options);
    expect_close(found.output, expected.output, 4e-5, "output");
  });
}

TEST_P(Fused, GradientsEqualTheComposedSteps) {
  for_seeds(25, [](std::mt19937& rng) {
    Inputs in = tile_inputs(rng, GetParam());
    SCOPED_TRACE(describe(in));
    const Sizes& s = in.sizes;
    const Tensor g = uniform(rng, {s.b, s.hq, s.tq, s.dv}, GetParam());
    const AttentionGradient found = attention_backward(g, in.q, in.k, in.v, in.options);
    const AttentionGradient expected =
        attention_backward(g.to(DType::f64), in.q.to(DType::f64), in.k.to(DType::f64), in.v.to(DType::f64), in.options);
    const double close = 8 * tolerance(GetParam());
    expect_close(found.q, expected.q, close, "dq", 1);
    expect_close(found.k, expected.k, close, "dk", 1);
    expect_close(found.v, expected.v, close, "dv");
    if (in.options.mask.bias.defined()) {
      // Each element is a sum over what the bias was broadcast to, of terms that cancel.
      const auto terms =
          static_cast<double>(s.b * s.hq * s.tq * s.tk / std::max<std::int64_t>(expected.bias.numel(), 1));
      expect_close(found.bias, expected.bias, close * std::sqrt(std::max(terms, 1.0)), "dbias", 1);
    }
    if (in.options.sinks.defined()) {
      expect_close(found.sinks, expected.sinks, close * std::sqrt(static_cast<double>(s.b * s.tq)), "dsinks", 1);
    }
  });
}

// Most queries see none of a chunk's keys, which then has no partial sum of their dq: what lies there counts for
// nothing. A call without a mask leaves large numbers there.
TEST_P(Fused, ChunksThatAQuerySeesNothingOfGiveItNoGradient) {
  const std::array<std::int64_t, 2> lengths{640, 31};
  const Mask short_texts =
      Mask::causal() & Mask::window(50, 0) & Mask::lengths(Tensor::from<std::int64_t>(lengths, {2}));
  Tensor diagonal = Tensor::zeros({6, 6}, DType::boolean);
  for (std::int64_t i = 0; i < 6; ++i) diagonal.data<bool>()[7 * i] = true;
  for_seeds(1, [&](std::mt19937& rng) {
    for (const Mask& mask :
         {Mask::blocks(diagonal, 128, 128), Mask::window(30, 0), Mask::window(0, 300), Mask::causal(), short_texts}) {
      const Tensor q = uniform(rng, {2, 2, 700, 8}, GetParam()), k = uniform(rng, {2, 1, 700, 8}, GetParam());
      const Tensor g = uniform(rng, {2, 2, 700, 8}, GetParam());
      attention_backward(Tensor::full(g.shape(), 1e4, GetParam()), q, k, k);
      const AttentionGradient found = attention_backward(g, q, k, k, {.mask = mask});
      const auto wide = [](const Tensor& x) { return x.to(DType::f64); };
      const AttentionGradient expected = attention_backward(wide(g), wide(q), wide(k), wide(k), {.mask = mask});
      expect_close(found.q, expected.q, 8 * tolerance(GetParam()), "dq", 1);
      expect_close(found.k, expected.k, 8 * tolerance(GetParam()), "dk", 1);
      expect_close(found.v, expected.v, 8 * tolerance(GetParam()), "dv");
    }
  });
}

TEST_P(Fused, ThreadsAndBatchDoNotChangeABit) {
  for_seeds(10, [](std::mt19937& rng) {
    const Inputs in = tile_inputs(rng, GetParam());
    SCOPED_TRACE(describe(in));
    const Tensor g = uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv}, GetParam());
    const auto run = [&](int threads) {
      const int before = omp_get_max_threads();
      omp_set_num_threads(threads);
      const auto forward = attention(in.q, in.k, in.v, in.options);
      const auto grad = attention_backward(g, in.q, in.k, in.v, in.options, forward);
      omp_set_num_threads(before);
      return std::vector<Tensor>{forward.output, forward.lse, grad.q, grad.k, grad.v};
    };
    const auto one = run(1);
    for (const int threads : {2, 3, 7}) {
      const auto many = run(threads);
      for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(identical(one[i], many[i])) << threads << " threads";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(DTypes, Fused, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST(FusedBatch, ABatchItemAloneIsTheSame) {
  for_seeds(10, [](std::mt19937& rng) {
    Sizes s = tile_sizes(rng);
    s.b = 3;
    const Tensor q = uniform(rng, {s.b, s.hq, s.tq, s.d}, DType::f32),
                 k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, DType::f32);
    const Tensor v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, DType::f32);
    const Mask mask = Mask::causal() & Mask::window(40, -1);
    const Tensor whole = attention(q, k, v, {.mask = mask}).output;
    for (std::int64_t b = 0; b < s.b; ++b) {
      const auto one = [b](const Tensor& t) { return t.slice(0, b, b + 1); };
      EXPECT_TRUE(identical(one(whole).clone(), attention(one(q), one(k), one(v), {.mask = mask}).output));
    }
  });
}

// Sizes at which kernels may split float32 into parts. Errors are measured by the largest number that came in. Where
// that is float32's largest, sums may leave its range, and are infinite or NaN then.
TEST(Precision, GradientsOfExtremeNumbersEndAsInFloat64) {
  static constexpr double kMost = std::numeric_limits<float>::max();
  const auto check = [](const Tensor& found, const Tensor& expected, double close, bool may_leave, const char* what) {
    const auto got = values(found), want = values(expected);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (may_leave && !std::isfinite(got[i])) continue;
      ASSERT_EQ(std::isfinite(got[i]), std::isfinite(want[i])) << what << " " << i << ": " << got[i] << ", " << want[i];
      if (std::isfinite(want[i])) {
        ASSERT_NEAR(got[i], want[i], close) << what << " " << i;
      }
    }
  };
  for (const double extreme : {HUGE_VAL, std::nan(""), kMost, -kMost, 1e-40}) {
    for (std::size_t operand = 0; operand < 4; ++operand) {
      for (const auto& [precision, tolerance] : {std::pair{Precision::highest, 1e-5}, {Precision::high, 2e-4}}) {
        if (shortened() && precision == Precision::high) continue;
        std::mt19937 rng(3);
        Tensor in[4];  // q, k, v and the output's gradient
        for (Tensor& t : in) t = uniform(rng, {1, 1, shortened() ? 96 : 160, 64}, DType::f32);
        in[operand].set({0, 0, 90, 7}, extreme);
        AttentionOptions options;
        options.mask = Mask::causal();
        options.precision = precision;
        const AttentionGradient found = attention_backward(in[3], in[0], in[1], in[2], options);
        for (Tensor& t : in) t = t.to(DType::f64);
        const AttentionGradient expected = attention_backward(in[3], in[0], in[1], in[2], options);
        const double close = tolerance * (std::isfinite(extreme) ? std::max(1.0, std::fabs(extreme)) : 1);
        SCOPED_TRACE(std::to_string(extreme) + " in operand " + std::to_string(operand));
        // An infinite score makes its query NaN, and with it keys whose own scores are -inf.
        const bool may_leave = std::fabs(extreme) == kMost || (std::isinf(extreme) && operand < 2);
        check(found.q, expected.q, close, may_leave, "dq");
        check(found.k, expected.k, close, may_leave, "dk");
        check(found.v, expected.v, close, may_leave, "dv");
      }
    }
  }
}

TEST(Precision, KeepsItsPromise) {
  std::mt19937 rng(5);
  const Tensor q = uniform(rng, {1, 2, 300, 64}, DType::f32), k = uniform(rng, {1, 2, 300, 64}, DType::f32);
  const Tensor v = uniform(rng, {1, 2, 300, 64}, DType::f32);
  const Tensor expected = attention(q.to(DType::f64), k.to(DType::f64), v.to(DType::f64)).output;
  const auto found = [&](Precision precision) { return attention(q, k, v, {.precision = precision}).output; };
  expect_close(found(Precision::highest), expected, 1e-6, "highest");
  expect_close(found(Precision::high), expected, 4e-5, "high");
  expect_close(found(Precision::medium), expected, 1e-2, "medium");
}

// ---- Philox -------------------------------------------------------------------------------

TEST(Philox, GivesThePublishedWords) {
  // Random123's known answers, kat_vectors: philox4x32 10.
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeepsItsShareAndDrawsEachElementByItself) {
  const Tensor keep = philox_keep({2, 3, 50, 70}, 0.3, 7);
  double kept = 0;
  for (const double x : values(keep)) kept += x;
  EXPECT_NEAR(kept / static_cast<double>(keep.numel()), 0.7, 0.01);
  EXPECT_TRUE(
      identical(keep.slice(2, 0, 20).slice(3, 0, 30).slice(0, 0, 1).clone(), philox_keep({1, 3, 20, 30}, 0.3, 7)));
  EXPECT_FALSE(identical(keep, philox_keep({2, 3, 50, 70}, 0.3, 8)));
}

// One problem with dropout from a key, and the same with the key's mask in memory.
struct TwoDropouts {
  Inputs in;
  AttentionOptions by_key, by_mask;

  TwoDropouts(std::mt19937& rng, DType dtype) {
    const Sizes s = in.sizes = tile_sizes(rng);
    in.q = uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype), in.k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype);
    in.v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype);
    by_key.dropout = by_mask.dropout = 0.4;
    by_key.dropout_key = rng() * std::uint64_t{0x100000001};
    by_mask.dropout_keep = philox_keep({s.b, s.hq, s.tq, s.tk}, 0.4, *by_key.dropout_key);
  }
};

TEST(Philox, FusedDropoutIsItsMask) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for_seeds(10, [dtype](std::mt19937& rng) {
      const TwoDropouts two(rng, dtype);
      const Inputs& in = two.in;
      EXPECT_TRUE(
          identical(attention(in.q, in.k, in.v, two.by_key).output, attention(in.q, in.k, in.v, two.by_mask).output));
    });
  }
}

// A probability of 1 has no threshold of 32 bits.
TEST(Philox, ADropoutOfOneDropsAll) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::mt19937 rng(1);
    TwoDropouts two(rng, dtype);
    two.by_key.dropout = 1;
    const Inputs& in = two.in;
    const AttentionResult result = attention(in.q, in.k, in.v, two.by_key);
    const AttentionGradient grad =
        attention_backward(Tensor::ones(result.output.shape(), dtype), in.q, in.k, in.v, two.by_key, result);
    for (const Tensor* t : {&result.output, &grad.q, &grad.k, &grad.v}) {
      for (const double x : values(*t)) ASSERT_EQ(x, 0);
    }
  }
}

// Forward and backward draw the same mask: the gradient is the reference's for that mask, and its bits are those of
// the mask in memory.
TEST(Philox, FusedGradientIsOfItsMask) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for_seeds(6, [dtype](std::mt19937& rng) {
      const TwoDropouts two(rng, dtype);
      const Inputs& in = two.in;
      SCOPED_TRACE(std::string(name(dtype)) + " " + describe(in));
      const Tensor g = uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv}, dtype);
      const auto wide = [](const Tensor& t) { return t.to(DType::f64); };
      const AttentionGradient found = attention_backward(g, in.q, in.k, in.v, two.by_key),
                              same = attention_backward(g, in.q, in.k, in.v, two.by_mask),
                              exact = attention_backward(wide(g), wide(in.q), wide(in.k), wide(in.v), two.by_mask);
      EXPECT_TRUE(identical(found.q, same.q) && identical(found.k, same.k) && identical(found.v, same.v));
      expect_close(found.q, exact.q, 8 * tolerance(dtype), "dq", 1);
      expect_close(found.k, exact.k, 8 * tolerance(dtype), "dk", 1);
      expect_close(found.v, exact.v, 8 * tolerance(dtype), "dv");
    });
  }
}

// ---- memory -------------------------------------------------------------------------------

TEST(Memory, IsLinearIn64kTokens) {
  constexpr std::int64_t tokens = 65536, d = 16;
  Generator rng(1);
  const Tensor q = rng.randn({1, 1, tokens, d}), k = rng.randn({1, 1, tokens, d}), v = rng.randn({1, 1, tokens, d});
  const AttentionOptions options{.mask = Mask::causal() & Mask::window(256, 0), .dropout = 0.1, .dropout_key = 3};
  const AttentionResult result = attention(q, k, v, options);
  const AttentionGradient grad = attention_backward(v, q, k, v, options, result);
  EXPECT_EQ(grad.k.shape(), k.shape());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // 70 MB, 4 for each tensor; a (tokens, tokens) of bytes alone would be 4 GB. Sanitizers take several times more.
  EXPECT_LT(usage.ru_maxrss / 1024, 1024) << "MB";
}

}  // namespace
}  // namespace attn::test
