// Infinities and NaN in seen and hidden places against the oracle: what a mask hides takes nothing from them, forward
// and backward. The whole program runs once for every instruction set.
#include <sys/resource.h>

#include <ctime>
#include <span>

#include "attention/tiles.hpp"
#include "attn/attention.hpp"
#include "attn/kv_cache.hpp"
#include "core/threads.hpp"

namespace attn::test {
namespace {

// Some numbers of x become one of `kinds`, some of them in a whole row.
void spoil(std::mt19937& rng, const Tensor& x, const std::vector<double>& kinds) {
  if (x.numel() == 0) return;
  for (std::int64_t n = pick(rng, 1, 3); n > 0; --n) {
    const double value = kinds[static_cast<std::size_t>(pick(rng, 0, static_cast<std::int64_t>(kinds.size()) - 1))];
    Tensor row = x.select(0, pick(rng, 0, x.size(0) - 1)).select(0, pick(rng, 0, x.size(1) - 1));
    row = row.select(0, pick(rng, 0, x.size(2) - 1));
    chance(rng, 0.3) ? row.fill(value) : row.set({pick(rng, 0, x.size(3) - 1)}, value);
  }
}

// A problem that the oracle's loops see every element of. Dropout and score functions are not masks: what they take
// away is a weight of zero, whose product with NaN is NaN.
Inputs draw(std::mt19937& rng, DType dtype) {
  while (true) {
    Inputs in = tile_inputs(rng, dtype);
    in.options.dropout = 0, in.options.dropout_keep = {}, in.options.dropout_key = {};
    in.options.score_function = {};
    in.options.return_weights = false, in.options.weight_rows = {};
    const Sizes& s = in.sizes;
    if (s.b * s.hq * s.tq * s.tk * (s.d + s.dv) < 3'000'000) return in;
  }
}

void expect_same(const Tensor& found, const oracle::Numbers& expected, double roundoff, oracle::Of of,
                 const char* what) {
  EXPECT_EQ(oracle::difference(found, expected, roundoff, what, of), "");
}

void expect_gradients(const AttentionGradient& grad, const oracle::Gradient& expected, double roundoff) {
  const auto same = [&](const Tensor& found, const oracle::Numbers& numbers, const char* what) {
    if (found.defined()) expect_same(found, numbers, roundoff, oracle::Of::gradient, what);
  };
  same(grad.q, expected.q, "dq"), same(grad.k, expected.k, "dk"), same(grad.v, expected.v, "dv");
  same(grad.bias, expected.bias, "dbias"), same(grad.relative_bias, expected.relative, "drelative_bias");
}

class SpecialNumbers : public testing::TestWithParam<DType> {};

TEST_P(SpecialNumbers, ReachWhatSeesThemAlone) {
  for_seeds(60, [](std::mt19937& rng) {
    Inputs in = draw(rng, GetParam());
    constexpr Precision precisions[] = {Precision::highest, Precision::high, Precision::medium};
    in.options.precision = precisions[pick(rng, 0, 2)];
    SCOPED_TRACE(describe(in));
    const std::vector<double> kinds{kNan, kInf, -kInf};
    const std::int64_t which = pick(rng, 0, 4);
    if (which == 0 || which == 4) spoil(rng, in.v, kinds);
    if (which == 1 || which == 4) spoil(rng, in.k, {kNan});
    if (which == 2) spoil(rng, in.q, {kNan});
    const oracle::Problem p = oracle::problem_of(in.q, in.k, in.v, in.options);
    const oracle::Result want = oracle::attention(p);
    const AttentionResult found = attention(in.q, in.k, in.v, in.options);
    expect_same(found.output, want.output, p.roundoff, oracle::Of::result, "output");
    expect_same(found.lse, want.lse, p.roundoff, oracle::Of::result, "lse");
    const Tensor d_output = uniform(rng, found.output.shape(), GetParam());
    if (which == 3 || which == 4) spoil(rng, d_output, kinds);
    const oracle::Gradient gradient = oracle::gradient(p, oracle::values(d_output));
    const AttentionGradient grad = attention_backward(d_output, in.q, in.k, in.v, in.options, found);
    expect_gradients(grad, gradient, p.roundoff);
  });
}

INSTANTIATE_TEST_SUITE_P(DTypes, SpecialNumbers, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST(SpecialNumbers, UnderASoftcapTakeNothingFromWhoDoesNotSeeThem) {
  std::mt19937 rng(9);
  for (const DType dtype : {DType::f32, DType::f16, DType::f64}) {
    const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 2, t, 8}, dtype); };
    Tensor k = draw(20), keep = Tensor::ones({20}, DType::boolean);
    k.select(2, 5).fill(kNan), keep.set({5}, 0);
    for (const bool weights : {false, true}) {
      AttentionOptions options{.mask = Mask::boolean(keep), .softcap = 3, .return_weights = weights};
      Tensor q = draw(30);
      const Tensor v = draw(20), g = draw(30);
      const AttentionGradient grad = attention_backward(g, q, k, v, options);
      expect_finite(grad.q, "dq"), expect_finite(grad.k, "dk"), expect_finite(grad.v, "dv");
      q.set({0, 0, 3, 2}, kInf);
      const AttentionGradient of_infinity = attention_backward(g, q, k, v, options);
      for (const double x : values(of_infinity.k.select(2, 5))) EXPECT_EQ(x, 0);
      for (const double x : values(of_infinity.v.select(2, 5))) EXPECT_EQ(x, 0);
    }
  }
}

// Softmax of (1, inf, 2) has no number that is one.
TEST(SpecialNumbers, MakeAllWeightsOfARowNaN) {
  Tensor q = Tensor::ones({1, 1, 1, 1}), k = Tensor::ones({1, 1, 4, 1});
  k.set({0, 0, 1, 0}, kInf);
  AttentionOptions options{.mask = Mask::boolean(tensor({1, 1, 1, 0}, {4}, DType::boolean)), .return_weights = true};
  const std::vector<double> weights = values(attention(q, k, k, options).weights);
  for (int j = 0; j < 3; ++j) EXPECT_TRUE(std::isnan(weights[static_cast<std::size_t>(j)])) << j;
  EXPECT_EQ(weights[3], 0);
}

// A weight of 0 may stand for a small one, and only a mask hides a value. The composed path, which float64 and traces
// take, says so as the kernels do, and so do the gradients.
TEST(SpecialNumbers, OfValuesAreSeenWhereWeightsRoundToZero) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const double special : {kInf, -kInf, std::numeric_limits<double>::quiet_NaN()}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << " " << special);
      const Tensor q = Tensor::ones({1, 1, 2, 1}, dtype), ones = Tensor::ones({1, 1, 2, 2}, dtype);
      Tensor k = Tensor::zeros({1, 1, 3, 1}, dtype), v = Tensor::ones({1, 1, 3, 2}, dtype);
      k.set({0, 0, 1, 0}, -1e4), v.set({0, 0, 1, 0}, special);
      for (const bool first_sees : {true, false}) {
        const Tensor keep = tensor({1, 1.0 * first_sees, 1, 1, 1, 1}, {1, 1, 2, 3}, DType::boolean);
        const AttentionOptions options{.mask = Mask::boolean(keep)};
        Trace steps;
        const Tensor output = attention(q, k, v, options).output, traced = attention(q, k, v, options, &steps).output;
        const AttentionGradient grad = attention_backward(ones, q, k, v, options);
        for (const Tensor& z : {output, traced}) {
          EXPECT_EQ(std::isfinite(z.at({0, 0, 0, 0})), !first_sees);
          EXPECT_FALSE(std::isfinite(z.at({0, 0, 1, 0})));
          EXPECT_EQ(std::isnan(z.at({0, 0, 1, 0})), std::isnan(special));
          EXPECT_EQ(z.at({0, 0, 0, 1}), 1) << "another column";
        }
        EXPECT_EQ(std::isfinite(grad.q.at({0, 0, 0, 0})), !first_sees);
        EXPECT_FALSE(std::isfinite(grad.q.at({0, 0, 1, 0})));
        EXPECT_FALSE(std::isfinite(grad.k.at({0, 0, 1, 0})));
        EXPECT_FALSE(std::isfinite(grad.k.at({0, 0, 0, 0}))) << "a key beside it";
        EXPECT_EQ(std::isnan(grad.k.at({0, 0, 0, 0})), std::isnan(special)) << "by a weight above 0";
      }
    }
  }
}

// The largest numbers become infinite where they are split into parts of bfloat16, and gradients of finite sums do not.
TEST(SpecialNumbers, TheLargestOnesLeaveGradientsFinite) {
  std::mt19937 rng(41);
  const auto drawn = [&] { return uniform(rng, {1, 1, 200, 64}, DType::f32); };
  const Tensor q = drawn(), d_output = uniform(rng, {1, 1, 200, 64}, DType::f32, -1e-3, 1e-3);
  const double most = std::numeric_limits<float>::max();
  for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
    Tensor k = drawn(), v = drawn();
    v.set({0, 0, 7, 3}, most);
    const AttentionGradient of_value = attention_backward(d_output, q, k, v, {.precision = precision});
    v.set({0, 0, 7, 3}, 0), k.set({0, 0, 7, 3}, most), q.slice(3, 3, 4).fill(0);
    const AttentionGradient of_key = attention_backward(d_output, q, k, v, {.precision = precision});
    for (const AttentionGradient* grad : {&of_value, &of_key}) {
      for (const Tensor& t : {grad->q, grad->k, grad->v}) expect_finite(t, "a gradient");
    }
  }
}

// A batch item has the gradients' bits that it has alone, whatever is beside it.
TEST(SpecialNumbers, OfOneItemLeaveTheBitsOfAnother) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::mt19937 rng(42);
    std::vector<Tensor> in(4);
    for (Tensor& t : in) t = uniform(rng, {2, 1, 200, 64}, dtype);
    const auto second = [](const Tensor& t) { return t.slice(0, 1, 2).contiguous(); };
    in[1].set({0, 0, 3, 5}, kNan);
    const AttentionGradient both = attention_backward(in[3], in[0], in[1], in[2]);
    const AttentionGradient alone = attention_backward(second(in[3]), second(in[0]), second(in[1]), second(in[2]));
    EXPECT_TRUE(identical(second(both.q), alone.q)) << name(dtype);
    EXPECT_TRUE(identical(second(both.k), alone.k)) << name(dtype);
    EXPECT_TRUE(identical(second(both.v), alone.v)) << name(dtype);
  }
}

// Huge numbers in a bias by position, by distance or by a slope touch only the rows that see them. A bias of -inf
// hides keys beside them.
TEST(SpecialNumbers, OfABiasReachWhatSeesThemAlone) {
  for_seeds(200, [](std::mt19937& rng) {
    const std::int64_t tq = pick(rng, 1, 40), tk = pick(rng, 1, 40), d = 8;
    const DType dtype = chance(rng, 0.5) ? DType::f32 : DType::bf16;
    const auto draw = [&](std::int64_t t) { return uniform(rng, {1, 2, t, d}, dtype); };
    const Tensor q = draw(tq), k = draw(tk), v = draw(tk), d_output = draw(tq);
    AttentionOptions options;
    const auto large = [&](const Tensor& t) {
      constexpr double numbers[] = {3e38, -3e38, 1e38, 1e35, -1e30, 1e20, 1e8};
      for (std::int64_t n = pick(rng, 0, 3); n > 0; --n)
        Tensor(t).view({-1}).set({pick(rng, 0, t.numel() - 1)}, numbers[pick(rng, 0, 6)]);
      return t;
    };
    options.mask.is_causal = chance(rng, 0.5);
    if (chance(rng, 0.6)) {
      options.mask.bias = large(uniform(rng, chance(rng, 0.5) ? Shape{tk} : Shape{2, tq, tk}, DType::f32));
      for (std::int64_t n = pick(rng, 0, 9); n > 0; --n)
        options.mask.bias.view({-1}).set({pick(rng, 0, options.mask.bias.numel() - 1)}, -kInf);
    }
    if (chance(rng, 0.6)) options.relative_bias = {large(uniform(rng, {8, 2}, DType::f32)), chance(rng, 0.5), 60};
    if (chance(rng, 0.4)) options.alibi_slopes = large(uniform(rng, {2}, DType::f32));
    if (chance(rng, 0.3)) options.softcap = 2;
    if (chance(rng, 0.3)) options.dropout = 0.5, options.dropout_key = 7;
    const oracle::Problem p = oracle::problem_of(q, k, v, options);
    const AttentionResult found = attention(q, k, v, options);
    expect_same(found.output, oracle::attention(p).output, p.roundoff, oracle::Of::result, "output");
    const oracle::Gradient expected = oracle::gradient(p, oracle::values(d_output));
    const AttentionGradient grad = attention_backward(d_output, q, k, v, options, found);
    expect_gradients(grad, expected, p.roundoff);
  });
}

// ---- gradients ------------------------------------------------------------------------------

TEST(InfiniteGradients, AreWhatTheirDtypeMakesOfThem) {
  for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
    // dv sums 100 gradients over one key: past float16's range, and not past float32's.
    const Tensor q = Tensor::ones({1, 1, 100, 8}, dtype), k = Tensor::ones({1, 1, 1, 8}, dtype);
    const AttentionGradient grad = attention_backward(Tensor::full({1, 1, 100, 8}, 60000, dtype), q, k, k);
    for (const double x : values(grad.v)) EXPECT_EQ(x, dtype == DType::f16 ? kInf : 6e6);
    for (const double x : values(grad.q)) EXPECT_EQ(x, 0);
  }
}

long peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

TEST(InfiniteGradients, TakeMemoryOfTheirTokens) {
  const long before = peak_megabytes();
  constexpr std::int64_t tokens = 8192;
  std::mt19937 rng(5);
  Tensor in[4];
  for (Tensor& t : in) t = uniform(rng, {1, 1, tokens, 16}, DType::f16);
  in[3].set({0, 0, 5000, 3}, kInf);
  const AttentionOptions options{.mask = Mask::window(64, 0)};
  const AttentionGradient grad = attention_backward(in[3], in[0], in[1], in[2], options);
  const auto key = [&](std::int64_t j) { return values(grad.v.select(2, j)); };
  for (const std::int64_t j : {4936, 5000}) EXPECT_FALSE(std::isfinite(key(j)[3])) << j;
  for (const std::int64_t j : {4935, 5001}) EXPECT_TRUE(std::isfinite(key(j)[3])) << j;
  EXPECT_TRUE(std::isfinite(key(5000)[2]));
  EXPECT_LT(peak_megabytes() - before, 512);  // the scores of the whole would take 2 GB
}

// ---- what they cost -------------------------------------------------------------------------

// Seconds of a forward and a backward pass on one core, the fastest of three: others may use it, too.
double seconds(const Tensor& x) {
  double least = kInf;
  for (int run = 0; run < 3; ++run) {
    const std::clock_t start = std::clock();
    attention_backward(x, x, x, x, {}, attention(x, x, x));
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

// bench/special.txt has the costs; the bounds here are those of a loaded machine and of every build. Without what keeps
// it down the factor of subnormal numbers is 22. What huge numbers cost is told in docs/trust.md, and not bounded.
TEST(SpecialNumbers, CostLittleMoreThanOthers) {
  const Threads one(1);
  std::mt19937 rng(10);
  const Tensor x = uniform(rng, {1, 2, 256, 64}, DType::f32);
  const auto times = [&](double factor) {
    const Tensor scaled = x.clone();
    for (float& number : std::span(scaled.data<float>(), static_cast<std::size_t>(scaled.numel())))
      number *= static_cast<float>(factor);
    return scaled;
  };
  Tensor nan = x.clone();
  nan.set({0, 0, 100, 3}, kNan);
  const double ordinary = seconds(x);
  EXPECT_LT(seconds(times(0x1p-130)), 10 * ordinary);
  EXPECT_LT(seconds(nan), 10 * ordinary);
}

// ---- caches ---------------------------------------------------------------------------------

TEST(SpecialNumbers, ReachTheQueriesOfACacheThatSeeThem) {
  for_seeds(20, [](std::mt19937& rng) {
    KVCache cache({.batch = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 8, .dtype = DType::bf16, .page_size = 16});
    const Tensor k = uniform(rng, {1, 1, 100, 8}, DType::bf16), v = uniform(rng, {1, 1, 100, 8}, DType::bf16);
    spoil(rng, v, {kNan, kInf, -kInf});
    if (chance(rng, 0.3)) spoil(rng, k, {kNan});
    cache.append(k, v);
    const Tensor q = uniform(rng, {1, 2, pick(rng, 1, 4), 8}, DType::f32);
    AttentionOptions options{.mask = Mask::causal(Align::bottom_right)};
    options.mask.window_left = pick(rng, 0, 90);
    if (chance(rng, 0.5)) options.mask.keep = booleans(rng, {q.size(2), 100}, 0.7);
    const oracle::Problem p = oracle::problem_of(q, k, v, options);
    const oracle::Result want = oracle::attention(p);
    const AttentionResult found = attention(q, cache, options);
    expect_same(found.output, want.output, p.roundoff, oracle::Of::result, "output");
    expect_same(found.lse, want.lse, p.roundoff, oracle::Of::result, "lse");
  });
}

}  // namespace
}  // namespace attn::test
