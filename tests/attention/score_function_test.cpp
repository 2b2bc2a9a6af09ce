// A user's function of the scores: what the library has built in, written as one, gives the same. The whole program
// runs once for every instruction set.
#include "attn/score_function.hpp"

#include <atomic>

#include "attention/tiles.hpp"

namespace attn::test {
namespace {

ScoreFunction softcap_of(double cap) {
  return ScoreFunction::elementwise([cap](auto s, auto...) { return cap * std::tanh(static_cast<double>(s) / cap); },
                                    [cap](auto s, auto...) {
                                      const double t = std::tanh(static_cast<double>(s) / cap);
                                      return 1 - t * t;
                                    });
}

// s + bias(b, h, i, j)
template <class Bias>
ScoreFunction plus(Bias bias) {
  return ScoreFunction::elementwise([bias](auto s, auto... at) { return static_cast<double>(s) + bias(at...); },
                                    [](auto, auto...) { return 1.0; });
}

// Expects the same of both ways to compute one problem, forward and backward.
void expect_same(const Inputs& in, const AttentionOptions& built_in, const AttentionOptions& own, double close,
                 std::mt19937& rng) {
  SCOPED_TRACE(describe(in));
  const AttentionResult a = attention(in.q, in.k, in.v, built_in), b = attention(in.q, in.k, in.v, own);
  expect_close(b.output, a.output, close, "output");
  expect_close(b.lse, a.lse, close, "lse");
  const Tensor g = uniform(rng, a.output.shape(), a.output.dtype());
  const AttentionGradient da = attention_backward(g, in.q, in.k, in.v, built_in, a),
                          db = attention_backward(g, in.q, in.k, in.v, own, b);
  expect_close(db.q, da.q, 8 * close, "dq", 1);
  expect_close(db.k, da.k, 8 * close, "dk", 1);
  expect_close(db.v, da.v, 8 * close, "dv");
}

class OwnScores : public testing::TestWithParam<DType> {
 protected:
  static double close() { return GetParam() == DType::f64 ? 1e-13 : tolerance(GetParam()); }
  // Any options but those that the body sets.
  template <class Body>
  static void for_problems(Body&& body) {
    for_seeds(6, [&](std::mt19937& rng) {
      Inputs in = tile_inputs(rng, GetParam());
      in.options.score_function = {}, in.options.return_weights = false, in.options.weight_rows = {};
      body(in, rng);
    });
  }
};

TEST_P(OwnScores, Softcap) {
  for_problems([](Inputs& in, std::mt19937& rng) {
    AttentionOptions built_in = in.options, own = in.options;
    built_in.softcap = 1.5, own.softcap = 0;
    own.score_function = softcap_of(1.5);
    expect_same(in, built_in, own, close(), rng);
  });
}

TEST_P(OwnScores, ActAfterTheSoftcapAndBeforeTheBias) {
  for_problems([](Inputs& in, std::mt19937& rng) {
    // 3 · cap · tanh(s / cap) is the softcap 3 · cap of 3 · s; what is added later is not multiplied.
    AttentionOptions built_in = in.options, own = in.options;
    built_in.softcap = 6, built_in.scale = 1.5, own.softcap = 2, own.scale = 0.5;
    own.score_function =
        ScoreFunction::elementwise([](auto s, auto...) { return 3 * s; }, [](auto, auto...) { return 3; });
    expect_same(in, built_in, own, 3 * close(), rng);
  });
}

TEST_P(OwnScores, Alibi) {
  for_problems([](Inputs& in, std::mt19937& rng) {
    in.options.mask.query_starts = in.options.mask.key_starts = in.options.mask.key_lengths = {};
    in.options.mask.align = Align::bottom_right;
    AttentionOptions built_in = in.options, own = in.options;
    built_in.alibi_slopes = uniform(rng, {in.sizes.hq}, DType::f32, 0, 0.5), own.alibi_slopes = {};
    own.score_function = plus([slopes = values(built_in.alibi_slopes), shift = in.sizes.tk - in.sizes.tq](
                                  auto, std::int64_t h, std::int64_t i, std::int64_t j) {
      return -slopes[static_cast<std::size_t>(h)] * static_cast<double>(std::abs(i + shift - j));
    });
    expect_same(in, built_in, own, 2 * close(), rng);
  });
}

// T5 (Raffel et al. 2020, section 2.1): near distances have a bucket each, far ones share them logarithmically.
std::int64_t t5_bucket(std::int64_t distance) {
  constexpr std::int64_t buckets = 16, exact = 8, far = 128;
  const std::int64_t side = distance > 0 ? buckets : 0, length = std::abs(distance);
  if (length < exact) return side + length;
  const double share = std::log(static_cast<double>(length) / exact) / std::log(static_cast<double>(far) / exact);
  return side + std::min<std::int64_t>(buckets - 1, exact + static_cast<std::int64_t>(share * (buckets - exact)));
}

TEST_P(OwnScores, RelativePositionsInT5Buckets) {
  for_problems([](Inputs& in, std::mt19937& rng) {
    const Sizes& s = in.sizes;
    const std::vector<double> table = values(uniform(rng, {s.hq, 32}, DType::f32, -2, 2));
    const auto bias_at = [table](auto, std::int64_t h, std::int64_t i, std::int64_t j) {
      return table[static_cast<std::size_t>(h * 32 + t5_bucket(j - i))];
    };
    AttentionOptions built_in = in.options, own = in.options;
    built_in.mask.bias = Tensor::empty({s.hq, s.tq, s.tk}), own.mask.bias = {};
    for (std::int64_t n = 0; n < s.hq * s.tq * s.tk; ++n) {
      built_in.mask.bias.data<float>()[n] = static_cast<float>(bias_at(0, n / s.tk / s.tq, n / s.tk % s.tq, n % s.tk));
    }
    own.score_function = plus(bias_at);
    expect_same(in, built_in, own, close(), rng);
  });
}

TEST_P(OwnScores, ForbidKeys) {
  for_problems([](Inputs& in, std::mt19937& rng) {
    AttentionOptions built_in = in.options, own = in.options;
    const auto sees = [](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      return (b + 2 * h + 3 * i + 5 * j) % 4 != 0 && i % 7 != 3;
    };
    const Sizes& s = in.sizes;
    built_in.mask.keep = Tensor::empty({s.b, s.hq, s.tq, s.tk}, DType::boolean), own.mask.keep = {};
    for (std::int64_t n = 0; n < built_in.mask.keep.numel(); ++n) {
      built_in.mask.keep.data<bool>()[n] =
          sees(n / s.tk / s.tq / s.hq, n / s.tk / s.tq % s.hq, n / s.tk % s.tq, n % s.tk);
    }
    own.score_function = plus([sees](auto... at) { return sees(at...) ? 0 : -kInf; });
    expect_same(in, built_in, own, close(), rng);
  });
}

INSTANTIATE_TEST_SUITE_P(DTypes, OwnScores, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& instance) { return std::string(name(instance.param)); });

// ---- what they may return -------------------------------------------------------------------

TEST(ScoreFunction, NanAndInfinityStayInTheirRow) {
  std::mt19937 rng(1);
  const Tensor q = uniform(rng, {2, 2, 40, 8}, DType::f32), k = uniform(rng, {2, 2, 50, 8}, DType::f32),
               v = uniform(rng, {2, 2, 50, 8}, DType::f32);
  const auto with = [&](double poison, bool causal) {
    const auto function = plus([poison](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      return b == 1 && h == 0 && i == 30 && j == 31 ? poison : 0;
    });
    const Mask mask = causal ? Mask::causal() : Mask::none();
    return attention(q, k, v, {.mask = mask, .score_function = function});
  };
  for (const double poison : {kNan, kInf}) {
    const AttentionResult clean = with(0, false), found = with(poison, false);
    for (std::int64_t row = 0; row < 2 * 2 * 40; ++row) {
      const auto of = [row](const Tensor& t, std::int64_t width) { return t.view({160, width}).select(0, row); };
      if (row != 2 * 40 + 30) {
        EXPECT_TRUE(identical(of(found.output, 8), of(clean.output, 8))) << row;
        EXPECT_TRUE(identical(of(found.lse, 1), of(clean.lse, 1))) << row;
      } else {
        for (const double x : values(of(found.output, 8))) EXPECT_TRUE(std::isnan(x));
        EXPECT_TRUE(std::isnan(values(of(found.lse, 1))[0]));
      }
    }
    // The causal mask hides the poisoned score, which is then ignored.
    EXPECT_TRUE(identical(with(poison, true).output, with(0, true).output));
  }
}

// Also where rows are computed one by one, in double: a function may look its keys up in a table of its own.
TEST(ScoreFunction, IsAskedOfTheCallsOwnQueriesAndKeysAlone) {
  for (const double size : {1.0, 3e38, kInf, kNan}) {
    for (const bool causal : {false, true}) {
      std::mt19937 rng(3);
      Tensor q = uniform(rng, {2, 2, 5, 8}, DType::f32);
      const Tensor k = uniform(rng, {2, 2, 7, 8}, DType::f32);
      q.set({1, 1, 3, 2}, size);
      std::atomic<int> asked = 0, outside = 0;
      AttentionOptions options;
      options.mask.is_causal = causal;
      options.score_function = plus([&](auto b, auto h, auto i, auto j) {
        ++asked, outside += b < 0 || b >= 2 || h < 0 || h >= 2 || i < 0 || i >= 5 || j < 0 || j >= 7;
        return 0.0;
      });
      const AttentionResult result = attention(q, k, k, options);
      attention_backward(q, q, k, k, options, result);
      EXPECT_GT(asked, 0);
      EXPECT_EQ(outside, 0) << size;
    }
  }
}

TEST(ScoreFunction, ThatForbidsEverythingGivesZerosAndNoGradient) {
  std::mt19937 rng(1);
  const Tensor x = uniform(rng, {1, 2, 40, 8}, DType::f32);
  const AttentionOptions options{.score_function = ScoreFunction::elementwise([](auto, auto...) { return -kInf; },
                                                                              [](auto, auto...) { return kNan; })};
  const AttentionResult found = attention(x, x, x, options);
  EXPECT_EQ(values(found.output), std::vector<double>(2 * 40 * 8, 0));
  EXPECT_EQ(values(found.lse), std::vector<double>(2 * 40, -kInf));
  const AttentionGradient grad = attention_backward(x, x, x, x, options);
  for (const Tensor& d : {grad.q, grad.k, grad.v}) EXPECT_EQ(values(d), std::vector<double>(2 * 40 * 8, 0));
}

TEST(ScoreFunction, WithoutItsGradientServesForwardOnly) {
  std::mt19937 rng(1);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = uniform(rng, {1, 1, 4, 4}, dtype);
    const AttentionOptions options{.score_function = ScoreFunction::elementwise([](auto s, auto...) { return 2 * s; })};
    expect_close(attention(x, x, x, options).output, attention(x, x, x, {.scale = 1}).output, 1e-6, "output");
    expect_error(Error::Kind::argument, {"[attention_backward]", "its gradient", "without"},
                 [&] { attention_backward(x, x, x, x, options); });
  }
}

// A score function as a C library or numba's cfunc would give it: functions and a pointer, for float32 alone.
struct Doubling {
  float factor;
  std::atomic<std::int64_t> scores{0}, gradients{0};

  static void forward(const ScoreTile* t, void* user) {
    auto* self = static_cast<Doubling*>(user);
    for (std::int64_t r = 0; r < t->keys; ++r) {
      for (std::int64_t c = 0; c < t->queries; ++c) t->scores[r * t->key_step + c * t->query_step] *= self->factor;
    }
    self->scores += t->keys * t->queries;
  }
  static void backward(const ScoreTile* t, float* d_scores, void* user) {
    auto* self = static_cast<Doubling*>(user);
    for (std::int64_t r = 0; r < t->keys; ++r) {
      for (std::int64_t c = 0; c < t->queries; ++c) d_scores[r * t->key_step + c * t->query_step] *= self->factor;
    }
    self->gradients += t->keys * t->queries;
  }
  ScoreFunction function() { return {.forward = forward, .backward = backward, .user = this}; }
};

TEST(ScoreFunction, FromPlainFunctions) {
  std::mt19937 rng(1);
  Doubling doubling{2};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Inputs in;
    in.sizes = {2, 4, 2, 70, 90, 12, 9};
    in.q = uniform(rng, {2, 4, 70, 12}, dtype), in.k = uniform(rng, {2, 2, 90, 12}, dtype);
    in.v = uniform(rng, {2, 2, 90, 9}, dtype);
    const double close = dtype == DType::bf16 ? tolerance(dtype) : tolerance(DType::f32);
    expect_same(in, {.scale = 1}, {.scale = 0.5, .score_function = doubling.function()}, close, rng);
  }
}

// ---- block-sparse masks: time is proportional to the blocks that are kept ---------------------

TEST(ScoreFunction, OfFloat64AloneIsRefused) {
  const Tensor x = Tensor::ones({1, 1, 2, 4}, DType::f64);
  AttentionOptions options;
  options.score_function.forward64 = [](const ScoreTile64*, void*) {};
  expect_error(Error::Kind::argument, {"score_function.forward", "other functions alone"},
               [&] { attention(x, x, x, options); });
}

TEST(Blocks, CostNothingWhereTheyAreNot) {
  constexpr std::int64_t block = 64, blocks = 9;  // 576 tokens
  std::mt19937 rng(1);
  const Tensor keep = booleans(rng, {2, blocks, blocks}, 0.2);
  std::int64_t kept = 0;
  for (const double x : values(keep)) kept += static_cast<std::int64_t>(x);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = uniform(rng, {1, 2, block * blocks, 32}, dtype);
    Doubling doubling{2};
    const AttentionOptions options{.mask = Mask::blocks(keep, block, block), .score_function = doubling.function()};
    const AttentionResult forward = attention(x, x, x, options);
    EXPECT_EQ(doubling.scores, kept * block * block);
    doubling.scores = 0;
    attention_backward(x, x, x, x, options, forward);
    EXPECT_EQ(doubling.scores, kept * block * block);
    EXPECT_EQ(doubling.gradients, kept * block * block);
  }
}

TEST(Blocks, AreABooleanMask) {
  for_seeds(20, [](std::mt19937& rng) {
    Inputs in = tile_inputs(rng, DType::f32);
    in.options.return_weights = false, in.options.weight_rows = {};
    AttentionOptions blocks = in.options, cells = in.options;
    cells.mask.block_keep = {}, cells.mask.block_query = cells.mask.block_key = 0;
    blocks.mask = cells.mask, blocks.mask.keep = {};
    blocks.mask = blocks.mask & random_blocks(rng, in.sizes, chance(rng, 0.5) ? 20 : 200);
    const Mask& m = blocks.mask;
    const Sizes& s = in.sizes;
    cells.mask.keep = Tensor::empty({s.b, s.hq, s.tq, s.tk}, DType::boolean);
    for (std::int64_t n = 0; n < cells.mask.keep.numel(); ++n) {
      cells.mask.keep.data<bool>()[n] =
          broadcast_at(m.block_keep, {n / s.tk / s.tq / s.hq, n / s.tk / s.tq % s.hq, n / s.tk % s.tq / m.block_query,
                                      n % s.tk / m.block_key}) != 0;
    }
    expect_same(in, cells, blocks, tolerance(DType::f32), rng);
  });
}

TEST(Blocks, NothingBehindThemIsRead) {
  std::mt19937 rng(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor q = uniform(rng, {1, 1, 128, 16}, dtype), k = q.clone(), v = q.clone();
    const Tensor keep = tensor({1, 0, 1, 0, 1, 0, 1, 0}, {4, 2}, DType::boolean);  // blocks of 32 queries, 64 keys
    const AttentionOptions options{.mask = Mask::blocks(keep, 32, 64)};
    const Tensor bad_k = k.clone(), bad_v = v.clone();
    bad_k.slice(2, 64, 128).fill(kNan), bad_v.slice(2, 64, 128).fill(kInf);
    EXPECT_TRUE(identical(attention(q, bad_k, bad_v, options).output, attention(q, k, v, options).output));
    const auto found = attention_backward(q, q, bad_k, bad_v, options),
               expected = attention_backward(q, q, k, v, options);
    EXPECT_TRUE(identical(found.q, expected.q) && identical(found.k, expected.k) && identical(found.v, expected.v));
  }
}

TEST(Blocks, Mistakes) {
  const Tensor x = Tensor::ones({1, 2, 10, 4}), keep = Tensor::ones({2, 3}, DType::boolean);
  const auto with = [&](const Mask& mask) { return attention(x, x, x, {.mask = mask}).output; };
  EXPECT_TRUE(identical(with(Mask::blocks(keep, 5, 4)), attention(x, x, x).output));
  using Kind = Error::Kind;
  expect_error(Kind::shape, {"block_keep", "(1, 2, 2, 2)", "(2, 3)"}, [&] { with(Mask::blocks(keep, 5, 5)); });
  expect_error(Kind::argument, {"at least 1", "0 and 4"}, [&] { with(Mask::blocks(keep, 0, 4)); });
  expect_error(Kind::dtype, {"bool", "float32"}, [&] { with(Mask::blocks(keep.to(DType::f32), 5, 4)); });
  expect_error(Kind::argument, {"one block part"},
               [&] { (void)(Mask::blocks(keep, 5, 4) & Mask::blocks(keep, 5, 4)); });
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(
      identical(with(Mask::blocks(Tensor::ones({1, 1}, DType::boolean), most, most)), attention(x, x, x).output));
}

}  // namespace
}  // namespace attn::test
