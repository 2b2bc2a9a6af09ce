// The fused path with every option, at sizes that fill and overrun the kernels' tiles, against the composed steps,
// whose oracle forward_test.cpp is. The whole program runs once for every instruction set.
#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>

#include "attention/oracle.hpp"
#include "attn/attention.hpp"
#include "attn/random.hpp"
#include "random/philox.hpp"

namespace attn::test {
namespace {

// Sizes from one element to several tiles, uneven; sometimes few queries, which takes the decode kernel.
Sizes tile_sizes(std::mt19937& rng) {
  Sizes s;
  s.b = pick(rng, 1, 2), s.hkv = pick(rng, 1, 2), s.hq = s.hkv * pick(rng, 1, 3);
  s.tq = chance(rng, 0.3) ? pick(rng, 1, 4) : pick(rng, 1, 150);
  s.tk = chance(rng, 0.2) ? pick(rng, 500, 1100) : pick(rng, 1, 300);
  s.d = pick(rng, 1, 70), s.dv = pick(rng, 1, 70);
  return s;
}

Tensor lengths(std::mt19937& rng, std::int64_t n, std::int64_t most) {
  Tensor t = Tensor::empty({n}, DType::i64);
  for (std::int64_t i = 0; i < n; ++i) t.data<std::int64_t>()[i] = pick(rng, 0, most);
  return t;
}

// 0, rising, `total`: n sequences, some of them empty.
Tensor starts(std::mt19937& rng, std::int64_t n, std::int64_t total) {
  Tensor t = lengths(rng, n + 1, total);
  auto* first = t.data<std::int64_t>();
  first[0] = 0, first[n] = total;
  std::sort(first, first + n + 1);
  return t;
}

void add_options(std::mt19937& rng, Inputs& in) {
  const Sizes& s = in.sizes;
  Mask& mask = in.options.mask;
  if (chance(rng, 0.4)) mask.window_left = pick(rng, 0, s.tk);
  if (chance(rng, 0.4)) mask.window_right = pick(rng, 0, s.tk);
  if (chance(rng, 0.3)) {
    mask.key_lengths = lengths(rng, s.b, s.tk);
  } else if (s.b == 1 && chance(rng, 0.5)) {
    const std::int64_t n = pick(rng, 1, 4);
    mask.query_starts = starts(rng, n, s.tq), mask.key_starts = starts(rng, n, s.tk);
  }
  if (chance(rng, 0.3)) in.options.alibi_slopes = uniform(rng, {s.hq}, DType::f32, 0, 0.5);
  if (chance(rng, 0.3)) in.options.sinks = uniform(rng, {s.hq}, DType::f32, -2, 2);
  if (chance(rng, 0.3)) {
    in.options.dropout = 0.3;
    in.options.dropout_keep = {};
    in.options.dropout_key = rng();
  }
  in.options.return_weights = chance(rng, 0.3);
  if (in.options.return_weights) in.options.weight_rows = lengths(rng, pick(rng, 0, 3), s.tq - 1);
}

// Sometimes as a projection leaves it: (b, t, h, d) in memory.
Tensor by_token(std::mt19937& rng, const Tensor& t) {
  return chance(rng, 0.5) ? t : t.transpose(1, 2).clone().transpose(1, 2);
}

Inputs tile_inputs(std::mt19937& rng, DType dtype) {
  Inputs in;
  const Sizes s = in.sizes = tile_sizes(rng);
  in.q = by_token(rng, uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype));
  in.k = by_token(rng, uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype));
  in.v = by_token(rng, uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype));
  in.options = random_options(rng, s, DType::f32);
  if (in.options.dropout == 1) in.options.dropout = 0, in.options.dropout_keep = {};
  add_options(rng, in);
  return in;
}

std::string describe(const Inputs& in) {
  const Sizes& s = in.sizes;
  const AttentionOptions& o = in.options;
  return "q " + in.q.shape().str() + " k " + in.k.shape().str() + " dv " + std::to_string(s.dv) + " causal " +
         std::to_string(o.mask.is_causal) + " window " + std::to_string(o.mask.window_left) + "," +
         std::to_string(o.mask.window_right) + " lengths " + std::to_string(o.mask.key_lengths.defined()) +
         " sequences " + std::to_string(o.mask.query_starts.defined()) + " alibi " +
         std::to_string(o.alibi_slopes.defined()) + " sinks " + std::to_string(o.sinks.defined()) + " dropout " +
         std::to_string(o.dropout) + " softcap " + std::to_string(o.softcap);
}

// Of the largest value: sums of a few hundred products, each rounded; and weights rounded to the element.
double tolerance(DType dtype) {
  if (dtype == DType::f32) return 32 * 0x1p-24;
  return dtype == DType::bf16 ? 4 * 0x1p-9 : 4 * 0x1p-12;
}

// The composed steps, which a trace asks for; in float32 with sums in double, quick under an emulator too.
AttentionResult exact(const Inputs& in) {
  Trace steps;
  return attention(in.q.to(DType::f32), in.k.to(DType::f32), in.v.to(DType::f32), in.options, &steps);
}

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
    expect_close(found.q, expected.q, close, "dq");
    expect_close(found.k, expected.k, close, "dk");
    expect_close(found.v, expected.v, close, "dv");
    if (in.options.mask.bias.defined()) {
      // Each element is a sum over what the bias was broadcast to, of terms that cancel.
      const auto terms =
          static_cast<double>(s.b * s.hq * s.tq * s.tk / std::max<std::int64_t>(expected.bias.numel(), 1));
      expect_close(found.bias, expected.bias, close * std::sqrt(std::max(terms, 1.0)), "dbias");
    }
    if (in.options.sinks.defined()) {
      expect_close(found.sinks, expected.sinks, close * std::sqrt(static_cast<double>(s.b * s.tq)), "dsinks");
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

TEST(Philox, FusedDropoutIsItsMask) {
  for_seeds(10, [](std::mt19937& rng) {
    const Sizes s = tile_sizes(rng);
    const Tensor q = uniform(rng, {s.b, s.hq, s.tq, s.d}, DType::f32),
                 k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, DType::f32);
    const Tensor v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, DType::f32);
    const std::uint64_t key = rng() * std::uint64_t{0x100000001};
    const Tensor keep = philox_keep({s.b, s.hq, s.tq, s.tk}, 0.4, key);
    EXPECT_TRUE(identical(attention(q, k, v, {.dropout = 0.4, .dropout_key = key}).output,
                          attention(q, k, v, {.dropout = 0.4, .dropout_keep = keep}).output));
  });
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
  // The tensors are 4 MB each; a (tokens, tokens) of bytes alone would be 4 GB. Sanitizers take several times more.
  EXPECT_LT(usage.ru_maxrss / 1024, 1024) << "MB";
}

}  // namespace
}  // namespace attn::test
