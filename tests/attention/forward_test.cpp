// attention() against the oracle, over random problems.
#include "attention/oracle.hpp"

namespace attn::test {
namespace {

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-14;
    case DType::f32:
      return 2e-6;
    case DType::f16:
      return 1e-3;
    default:
      return 1e-2;
  }
}

class Attention : public testing::TestWithParam<DType> {};

TEST_P(Attention, EqualsTheOracle) {
  for_seeds(150, [](std::mt19937& rng) {
    Inputs in = random_inputs(rng, GetParam());
    const AttentionResult expected = by_definition(in);
    if (chance(rng, 0.5)) in.q = scattered(rng, in.q);
    if (chance(rng, 0.5)) in.k = scattered(rng, in.k);
    if (chance(rng, 0.5)) in.v = scattered(rng, in.v);
    const AttentionResult found = attention(in.q, in.k, in.v, in.options);
    EXPECT_EQ(found.output.dtype(), GetParam());
    EXPECT_EQ(found.lse.dtype(), GetParam() == DType::f64 ? DType::f64 : DType::f32);
    expect_close(found.output, expected.output, tolerance(GetParam()), "output");
    const double wide = tolerance(found.lse.dtype());
    expect_close(found.lse, expected.lse, wide, "lse");
    EXPECT_EQ(found.weights.defined(), in.options.return_weights);
    if (found.weights.defined()) expect_close(found.weights, expected.weights, wide, "weights");
  });
}

TEST_P(Attention, EmptySizesGiveEmptyOrZeroResults) {
  const auto ones = [](const Shape& shape) { return Tensor::ones(shape, GetParam()); };
  EXPECT_EQ(attention(ones({0, 1, 2, 3}), ones({0, 1, 2, 3}), ones({0, 1, 2, 3})).output.numel(), 0);
  EXPECT_EQ(attention(ones({1, 0, 2, 3}), ones({1, 0, 2, 3}), ones({1, 0, 2, 3})).output.shape(), (Shape{1, 0, 2, 3}));
  EXPECT_EQ(attention(ones({1, 0, 2, 3}), ones({1, 2, 2, 3}), ones({1, 2, 2, 3})).output.shape(), (Shape{1, 0, 2, 3}));
  EXPECT_EQ(attention(ones({1, 1, 2, 3}), ones({1, 1, 2, 3}), ones({1, 1, 2, 0})).output.shape(), (Shape{1, 1, 2, 0}));
  const AttentionResult no_keys = attention(ones({1, 1, 2, 3}), ones({1, 1, 0, 3}), ones({1, 1, 0, 2}));
  EXPECT_EQ(values(no_keys.output), std::vector<double>(4, 0));
  EXPECT_EQ(values(no_keys.lse), std::vector<double>(2, -kInf));
}

TEST_P(Attention, HugeFiniteInputsGiveFiniteOutputs) {
  const double most = GetParam() == DType::f64 ? 1e300 : GetParam() == DType::f16 ? 65504 : 3e38;
  for_seeds(20, [&](std::mt19937& rng) {
    Inputs in = random_inputs(rng, GetParam(), 1);
    for (Tensor* t : {&in.q, &in.k, &in.v}) *t = uniform(rng, t->shape(), GetParam(), -most / 2, most / 2);
    if (chance(rng, 0.3)) in.options.scale = chance(rng, 0.5) ? 1e300 : -1e300;
    if (chance(rng, 0.3)) in.options.mask.bias = uniform(rng, {1}, DType::f64, -8e307, 8e307);
    expect_finite(attention(in.q, in.k, in.v, in.options).output, "output");
  });
}

INSTANTIATE_TEST_SUITE_P(DTypes, Attention, testing::Values(DType::f64, DType::f32, DType::f16, DType::bf16),
                         [](const auto& instance) { return std::string(name(instance.param)); });

// ---- masks ------------------------------------------------------------------------------

TEST(Causal, EqualsItsTensorAndItsBias) {
  for_seeds(20, [](std::mt19937& rng) {
    Inputs in = random_inputs(rng, DType::f32, 1);
    const Align align = chance(rng, 0.5) ? Align::top_left : Align::bottom_right;
    const Tensor keep = causal_keep(in.sizes.tq, in.sizes.tk, align), bias = Tensor::zeros(keep.shape());
    for (std::int64_t i = 0; i < keep.numel(); ++i) bias.data<float>()[i] = keep.data<bool>()[i] ? 0 : -INFINITY;
    const auto with = [&](const Mask& mask) { return attention(in.q, in.k, in.v, {.mask = mask}).output; };
    const Tensor expected = with(Mask::causal(align));
    EXPECT_TRUE(identical(with(Mask::boolean(keep)), expected));
    EXPECT_TRUE(identical(with(Mask::additive(bias)), expected));
  });
}

TEST(Mask, BroadcastsInEveryLegalWay) {
  std::mt19937 rng(1);
  Inputs in = random_inputs(rng, DType::f64, 2);
  const std::vector<std::int64_t> full{in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.tk};
  for (std::size_t first = 0; first <= 4; ++first) {
    for (unsigned ones = 0; ones < 1u << (4 - first); ++ones) {
      Shape shape;
      for (std::size_t i = first; i < 4; ++i) shape.push_back((ones >> (i - first)) & 1 ? 1 : full[i]);
      SCOPED_TRACE(shape.str());
      in.options = {};
      in.options.mask = Mask::boolean(booleans(rng, shape, 0.6)) & Mask::additive(uniform(rng, shape, DType::f32));
      expect_close(attention(in.q, in.k, in.v, in.options).output, by_definition(in).output, 1e-14, "output");
    }
  }
}

TEST(Mask, AFullyMaskedRowGivesZerosAndNoGradient) {
  std::mt19937 rng(1);
  const Tensor q = uniform(rng, {1, 1, 2, 3}), k = uniform(rng, {1, 1, 2, 3}), v = uniform(rng, {1, 1, 2, 3});
  const Tensor keep = tensor({0, 0, 1, 1}, {2, 2}, DType::boolean), bias = tensor({-kInf, 0}, {2, 1});
  for (const Mask& mask : {Mask::boolean(keep), Mask::additive(bias)}) {
    const AttentionResult r = attention(q, k, v, {.mask = mask, .return_weights = true});
    EXPECT_EQ(values(r.output.select(2, 0)), std::vector<double>(3, 0));
    EXPECT_EQ(values(r.weights.select(2, 0)), std::vector<double>(2, 0));
    EXPECT_EQ(values(r.lse)[0], -kInf);
    EXPECT_TRUE(std::isfinite(values(r.lse)[1]));
    const AttentionGradient grad = attention_backward(Tensor::ones({1, 1, 2, 3}, DType::f64), q, k, v, {.mask = mask});
    EXPECT_EQ(values(grad.q.select(2, 0)), std::vector<double>(3, 0));
    if (grad.bias.defined()) {
      EXPECT_EQ(values(grad.bias)[0], 0);
    }
  }
}

TEST(Mask, NothingBehindItIsRead) {
  // A NaN, or an infinity, in a masked key and value reaches neither outputs nor gradients.
  for (const auto& [poison, dtype] : {std::pair{kNan, DType::f64},
                                      {kInf, DType::f64},
                                      {kNan, DType::f32},
                                      {kInf, DType::f32},
                                      {-kInf, DType::f32},
                                      {kNan, DType::bf16}}) {
    SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(poison));
    std::mt19937 rng(1);
    const auto drawn = [&, t = dtype] { return uniform(rng, {1, 1, 3, 2}, t); };
    const Tensor q = drawn(), k = drawn(), v = drawn(), g = drawn();
    const Tensor keep = tensor({1, 1, 0}, {3}, DType::boolean), bias = tensor({0, 0, -kInf}, {3});
    for (const Mask& mask : {Mask::boolean(keep), Mask::additive(bias)}) {
      const Tensor bad_k = k.clone(), bad_v = v.clone();
      bad_k.select(2, 2).fill(poison), bad_v.select(2, 2).fill(poison);
      const AttentionOptions options{.mask = mask};
      // Numbers agree but for rounding, as rows beside a NaN are computed again.
      const double close = dtype == DType::bf16 ? 1e-2 : 1e-6;
      expect_close(attention(q, bad_k, bad_v, options).output, attention(q, k, v, options).output, close, "output");
      const auto found = attention_backward(g, q, bad_k, bad_v, options);
      const auto expected = attention_backward(g, q, k, v, options);
      expect_close(found.q, expected.q, close, "dq", 1);
      expect_close(found.k, expected.k, close, "dk", 1);
      expect_close(found.v, expected.v, close, "dv");
    }
  }
}

TEST(Attention, ANanInAQueryStaysInItsRow) {
  std::mt19937 rng(1);
  const Tensor q = uniform(rng, {1, 1, 3, 2}), k = uniform(rng, {1, 1, 3, 2}), v = uniform(rng, {1, 1, 3, 2});
  const Tensor clean = attention(q, k, v).output;
  q.select(2, 1).fill(kNan);
  const Tensor found = attention(q, k, v).output;
  for (const std::int64_t row : {0, 2}) EXPECT_TRUE(identical(found.select(2, row), clean.select(2, row)));
  for (const double x : values(found.select(2, 1))) EXPECT_TRUE(std::isnan(x));
}

// ---- independence -----------------------------------------------------------------------

TEST(Attention, BatchItemsAndHeadsDoNotInfluenceEachOther) {
  for_seeds(20, [](std::mt19937& rng) {
    const Sizes s = random_sizes(rng, 1);
    const Tensor q = uniform(rng, {s.b, s.hq, s.tq, s.d}, DType::f32),
                 k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, DType::f32);
    const Tensor v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, DType::f32);
    const Tensor whole = attention(q, k, v, {.mask = Mask::causal()}).output;
    const std::int64_t group = s.hq / s.hkv;
    for (std::int64_t b = 0; b < s.b; ++b) {
      for (std::int64_t h = 0; h < s.hq; ++h) {
        const auto one = [&](const Tensor& t, std::int64_t head) {
          return t.slice(0, b, b + 1).slice(1, head, head + 1);
        };
        const Tensor alone =
            attention(one(q, h), one(k, h / group), one(v, h / group), {.mask = Mask::causal()}).output;
        EXPECT_TRUE(identical(one(whole, h).contiguous(), alone));
      }
    }
  });
}

TEST(Attention, DoesNotWriteItsInputs) {
  std::mt19937 rng(3);
  const Inputs in = random_inputs(rng, DType::f32, 2);
  const Tensor q = in.q.clone(), k = in.k.clone(), v = in.v.clone();
  attention(in.q, in.k, in.v, in.options);
  attention_backward(Tensor::ones({in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv}), in.q, in.k, in.v, in.options);
  EXPECT_TRUE(identical(in.q, q) && identical(in.k, k) && identical(in.v, v));
}

TEST(Attention, TracesItsStepsInOrder) {
  std::mt19937 rng(1);
  const Tensor q = uniform(rng, {1, 4, 3, 2}), k = uniform(rng, {1, 2, 5, 2}), v = uniform(rng, {1, 2, 5, 6});
  const auto names = [&](const AttentionOptions& options) {
    Trace trace;
    attention(q, k, v, options, &trace);
    std::string all;
    for (const auto& [step, value] : trace.steps()) all += step + value.shape().str() + " ";
    return all;
  };
  const std::string head = "queries(1, 4, 3, 2) keys(1, 4, 5, 2) values(1, 4, 5, 6) scores(1, 4, 3, 5) ";
  EXPECT_EQ(names({}), head + "scaled(1, 4, 3, 5) weights(1, 4, 3, 5) context(1, 4, 3, 6) ");
  const AttentionOptions all{
      .mask = Mask::causal(), .dropout = 0.5, .dropout_keep = Tensor::ones({1, 4, 3, 5}, DType::boolean)};
  EXPECT_EQ(names(all), head + "scaled(1, 4, 3, 5) masked(1, 4, 3, 5) weights(1, 4, 3, 5) dropped(1, 4, 3, 5) " +
                            "context(1, 4, 3, 6) ");
  const AttentionOptions changed{.mask = Mask::causal() & Mask::additive(Tensor::ones({3, 5})),
                                 .softcap = 2,
                                 .score_function = ScoreFunction::elementwise([](auto s, auto...) { return s / 2; }),
                                 .alibi_slopes = Tensor::ones({4})};
  EXPECT_EQ(names(changed), head + "scaled(1, 4, 3, 5) capped(1, 4, 3, 5) scored(1, 4, 3, 5) biased(1, 4, 3, 5) " +
                                "alibi(1, 4, 3, 5) masked(1, 4, 3, 5) weights(1, 4, 3, 5) context(1, 4, 3, 6) ");
  EXPECT_FALSE(attention(q, k, v).weights.defined());
}

// Each step follows from the one before, by its definition.
TEST(Attention, TracesWhatEachStepChanges) {
  std::mt19937 rng(2);
  const std::int64_t t = 4;
  const Tensor q = uniform(rng, {1, 1, t, 2}).to(DType::f64), bias = uniform(rng, {t, t}).to(DType::f64);
  const Tensor table = tensor({0.5, 2, -1, 3}, {4, 1});  // at the query, behind, no distance, past it
  const double cap = 0.5, slope = 0.25;
  Trace trace;
  attention(q, q, q,
            {.mask = Mask::causal() & Mask::additive(bias),
             .softcap = cap,
             .score_function = ScoreFunction::elementwise([](auto s, auto...) { return 3 * s; }),
             .alibi_slopes = Tensor::full({1}, slope),
             .relative_bias = {table}},
            &trace);
  for (std::int64_t i = 0; i < t; ++i) {
    for (std::int64_t j = 0; j < t; ++j) {
      const auto at = [&](const char* step) { return trace[step].at({0, 0, i, j}); };
      EXPECT_NEAR(at("capped"), cap * std::tanh(at("scaled") / cap), 1e-15);
      EXPECT_EQ(at("scored"), 3 * at("capped"));
      EXPECT_EQ(at("biased"), at("scored") + bias.at({i, j}));
      EXPECT_EQ(at("relative"), at("biased") + (j == i ? 0.5 : j < i ? 2.0 : 3.0));
      EXPECT_EQ(at("alibi"), at("relative") - slope * static_cast<double>(std::abs(i - j)));
      EXPECT_EQ(at("masked"), j > i ? -std::numeric_limits<double>::infinity() : at("alibi"));
    }
  }
}

}  // namespace
}  // namespace attn::test
