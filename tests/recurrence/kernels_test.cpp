// The kernels of every unit against the reference in float64; their promises about bits; special numbers.
#include <omp.h>

#include "case.hpp"
#include "kernels/targets.hpp"
#include "kernels/use.hpp"
#include "recurrence/plan.hpp"

namespace attn::test {
namespace {

class Recurrence : public kernels::CallsOnUnits {};

TEST_P(Recurrence, IsThatOfTheReference) {
  for_seeds(60, [](std::mt19937& rng) {
    const RecurrenceCase in = draw_recurrence(rng, chance(rng, 0.25) ? 150 : 40, chance(rng, 0.3) ? 80 : 20);
    const RecurrenceCase narrow = in.to(DType::f32), wide = narrow.to(DType::f64);
    const LinearAttentionResult found = run(narrow), expected = run(wide);
    expect_near(found.output, expected.output, 2e-6, "output");
    expect_near(found.state, expected.state, 2e-6, "state");
    expect_near(gradients(narrow), gradients(wide), 1e-5);
  });
}

TEST_P(Recurrence, TakesSixteenBits) {
  for_seeds(20, [](std::mt19937& rng) {
    const RecurrenceCase in = draw_recurrence(rng, 70, 40);
    const DType dtype = chance(rng, 0.5) ? DType::bf16 : DType::f16;
    const double tolerance = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    const RecurrenceCase narrow = in.to(dtype), wide = narrow.to(DType::f64);
    const LinearAttentionResult found = run(narrow), expected = run(wide);
    EXPECT_EQ(found.output.dtype(), dtype);
    EXPECT_EQ(found.state.dtype(), DType::f32);
    expect_near(found.output, expected.output, tolerance, "output");
    expect_near(found.state, expected.state, 2e-6, "state");
    expect_near(gradients(narrow), gradients(wide), tolerance);
  });
}

TEST_P(Recurrence, StridesChangeNothing) {
  for_seeds(10, [](std::mt19937& rng) {
    RecurrenceCase in = draw_recurrence(rng, 40, 40).to(DType::f32);
    const LinearAttentionResult before = run(in);
    const LinearAttentionGradient of_whole = gradients(in);
    for (Tensor* t : {&in.q, &in.k, &in.v, &in.d_output}) *t = scattered(rng, *t);
    for (Tensor* t : {&in.options.decay, &in.options.beta, &in.options.initial_state, &in.d_state})
      if (t->defined()) *t = scattered(rng, *t);
    expect_same_bits(run(in).output, before.output, "output");
    expect_same_bits(gradients(in).k, of_whole.k, "dk");
  });
}

TEST_P(Recurrence, HasTheSameBitsOnAnyThreads) {
  const int before = omp_get_max_threads();
  std::mt19937 rng(5);
  for (int round = 0; round < 6; ++round) {
    RecurrenceCase in = draw_recurrence(rng, 300, 100).to(round % 2 == 0 ? DType::f32 : DType::bf16);
    omp_set_num_threads(1);
    const LinearAttentionResult one = run(in);
    const LinearAttentionGradient of_one = gradients(in);
    for (const int threads : {2, 5, 16}) {
      omp_set_num_threads(threads);
      const LinearAttentionResult many = run(in);
      const LinearAttentionGradient of_many = gradients(in);
      expect_same_bits(many.output, one.output, "output");
      expect_same_bits(many.state, one.state, "state");
      expect_same_bits(of_many.k, of_one.k, "dk");
      expect_same_bits(of_many.decay, of_one.decay, "d_decay");
    }
    omp_set_num_threads(before);
  }
}

TEST_P(Recurrence, PiecesOfATextHaveTheBitsOfTheWhole) {
  const RecurrenceCase whole = one_text(101, 40, 7);
  const LinearAttentionResult at_once = run(whole);
  for (const std::int64_t cut : {4, 28, 32, 64, 100}) {
    RecurrenceCase first = tokens_of(whole, 0, cut), rest = tokens_of(whole, cut, 101);
    const LinearAttentionResult before = run(first);
    rest.options.initial_state = before.state;
    const LinearAttentionResult after = run(rest);
    expect_same_bits(before.output, at_once.output.slice(2, 0, cut).contiguous(), "the first piece");
    expect_same_bits(after.output, at_once.output.slice(2, cut, 101).contiguous(), "the rest");
    expect_same_bits(after.state, at_once.state, "state");
  }
}

TEST_P(Recurrence, AZeroKeepsItsSignInAGroupThatIsNotFull) {
  RecurrenceCase whole = one_text(5, 20, 7);
  for (const Tensor& t : {whole.k, whole.options.decay}) t.fill(0);
  whole.v.fill(-1);
  whole.options.initial_state = Tensor::zeros({1, 2, 20, 20});
  whole.options.initial_state.fill(-0.);
  EXPECT_TRUE(identical(run(whole).state, whole.options.initial_state));
}

TEST_P(Recurrence, ASequenceHasTheBitsThatItHasAlone) {
  RecurrenceCase packed = one_text(150, 33, 8);
  packed.options.starts = tensor({0, 70, 70, 101, 150}, {5}, DType::i64);
  const LinearAttentionResult all = run(packed);
  const LinearAttentionGradient of_all = gradients(packed);
  packed.options.starts = {};
  RecurrenceCase alone = tokens_of(packed, 70, 101);
  expect_same_bits(run(alone).output, all.output.slice(2, 70, 101).contiguous(), "output");
  expect_same_bits(run(alone).state.select(0, 0), all.state.select(0, 2).contiguous(), "state");
  const LinearAttentionGradient of_alone = gradients(alone);
  expect_same_bits(of_alone.q, of_all.q.slice(2, 70, 101).contiguous(), "dq");
  expect_same_bits(of_alone.decay, of_all.decay.slice(2, 70, 101).contiguous(), "d_decay");
}

TEST_P(Recurrence, PaddingIsNotRead) {
  RecurrenceCase c = one_text(90, 20, 9);
  const RecurrenceCase cut = tokens_of(c, 0, 61);
  const LinearAttentionResult expected = run(cut);
  const LinearAttentionGradient of_cut = gradients(cut);
  for (const Tensor& t : {c.q, c.k, c.v, c.d_output, c.options.decay, c.options.beta}) t.slice(2, 61, 90).fill(kNan);
  c.options.lengths = tensor({61}, {1}, DType::i64);
  const LinearAttentionResult found = run(c);
  expect_same_bits(found.output.slice(2, 0, 61).contiguous(), expected.output, "output");
  expect_same_bits(found.state, expected.state, "state");
  const LinearAttentionGradient of = gradients(c);
  expect_same_bits(of.k.slice(2, 0, 61).contiguous(), of_cut.k, "dk");
  for (const Tensor& t : {found.output, of.q, of.k, of.v, of.decay, of.beta}) {
    for (const double x : values(t.slice(2, 61, 90).contiguous())) ASSERT_EQ(x, 0);
  }
}

TEST_P(Recurrence, NanStaysInItsHeadAndReachesNothingEarlier) {
  for (const bool by_channel : {true, false}) {
    RecurrenceCase c = one_text(80, 20, 10);
    if (!by_channel) c.options.decay = c.options.decay.select(3, 0);
    const LinearAttentionResult clean = run(c);
    const LinearAttentionGradient of_clean = gradients(c);
    c.k.set({0, 1, 41, 3}, kNan);
    const LinearAttentionResult found = run(c);
    const LinearAttentionGradient of = gradients(c);
    expect_same_bits(found.output.select(1, 0).contiguous(), clean.output.select(1, 0).contiguous(), "the other head");
    expect_same_bits(of.k.select(1, 0).contiguous(), of_clean.k.select(1, 0).contiguous(), "the other head's dk");
    expect_same_bits(found.output.slice(2, 0, 41).contiguous(), clean.output.slice(2, 0, 41).contiguous(), "earlier");
    EXPECT_TRUE(std::isnan(found.output.at({0, 1, 41, 0})) && std::isnan(found.state.at({0, 1, 0, 0})));
  }
}

TEST_P(Recurrence, ADecayOfMinusInfinityForgetsAndAStrengthOfOneOverwrites) {
  std::mt19937 rng(11);
  RecurrenceCase c;
  c.k = Tensor::zeros({1, 1, 2, 5});
  c.k.set({0, 0, 0, 2}, 1), c.k.set({0, 0, 1, 2}, 1);
  c.q = c.k, c.v = uniform(rng, {1, 1, 2, 3}, DType::f32);
  c.options.rule = StateRule::delta, c.options.scale = 1;
  expect_near(run(c).output, c.v, 1e-6, "what was written last for this key");
  c.options.rule = StateRule::plain;
  c.options.decay = tensor({-kInf, -kInf}, {1, 1, 2}, DType::f32);
  c.options.initial_state = uniform(rng, {1, 1, 5, 3}, DType::f32);
  expect_same_bits(run(c).output, c.v, "nothing but this token's value");
  c.d_output = c.v;
  EXPECT_EQ(values(gradients(c).decay), (std::vector<double>{0, 0}));
  RecurrenceCase text = one_text(70, 20, 13);
  for (std::int64_t d = 0; d < 20; ++d) text.options.decay.set({0, 1, 37, d}, -kInf);
  const LinearAttentionGradient of_text = gradients(text);
  for (std::int64_t d = 0; d < 20; ++d) EXPECT_EQ(of_text.decay.at({0, 1, 37, d}), 0) << d;
}

// Each is as exact as its own size, which is exp(decay) of what is read and written: those of many tokens less those of
// others would leave rounding.
TEST_P(Recurrence, StrongDecaysHaveExactGradients) {
  std::mt19937 rng(14);
  for (const double strength : {5, 10, 20}) {
    for (const Shape& shape : {Shape{1, 2, 70}, Shape{1, 2, 70, 20}}) {
      for (const StateRule rule : {StateRule::plain, StateRule::delta}) {
        RecurrenceCase c = one_text(70, 20, 15);
        c.options.rule = rule;
        if (rule == StateRule::plain) c.options.beta = {};
        c.options.decay = uniform(rng, shape, DType::f64, -strength, -0.8 * strength);
        c.options.initial_state = uniform(rng, {1, 2, 20, 20});
        const std::vector<double> found = values(gradients(c).decay),
                                  expected = values(gradients(c.to(DType::f64)).decay);
        double largest = 0;
        for (const double x : expected) largest = std::max(largest, std::abs(x));
        for (std::size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(found[i], expected[i], 1e-5 * largest) << strength << ", " << shape.str() << " at " << i;
      }
    }
  }
}

// Longer than what is kept at once of states, 64 MB.
TEST_P(Recurrence, LongTextsAreCutIntoSegments) {
  if (left_to_nightly()) return;
  RecurrenceCase c;
  std::mt19937 rng(12);
  const std::int64_t tokens = 800, d = 1024;
  c.q = uniform(rng, {1, 1, tokens, d}), c.k = uniform(rng, {1, 1, tokens, d}), c.v = uniform(rng, {1, 1, tokens, 700});
  normalise(c.k);
  c.options.rule = StateRule::delta;
  c.options.decay = uniform(rng, {1, 1, tokens}, DType::f64, -0.1, 0);
  c.d_output = uniform(rng, {1, 1, tokens, 700});
  kernels::Recurrence shape{};
  shape.tokens = tokens, shape.d_k = d, shape.d_v = 700;
  const recurrence::Plan plan = recurrence::plan_backward(*kernels_.recurrence, shape, tokens);
  EXPECT_EQ(plan.segment, 5) << "of 25 chunks: " << plan.reason;
  // The gradient of the tokens of the end does not depend on earlier ones, but for the state that they leave.
  const RecurrenceCase whole = c.to(DType::f32);
  RecurrenceCase end = tokens_of(whole, 640, tokens);
  end.options.initial_state = run(tokens_of(whole, 0, 640)).state;
  expect_near(gradients(whole).k.slice(2, 640, tokens).contiguous(), gradients(end).k, 1e-5, "dk");
}

INSTANTIATE_TEST_SUITE_P(Kernels, Recurrence, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace attn::test
