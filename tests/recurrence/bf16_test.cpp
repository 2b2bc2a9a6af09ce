// bf16 inputs, which AMX computes by chunks: long texts, pieces of whole chunks, and numbers that are not finite.
#include <bit>

#include "case.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

class Bf16Recurrence : public kernels::CallsOnUnits {};

RecurrenceCase gated_text(std::int64_t tokens, std::int64_t d_k, std::int64_t d_v, unsigned seed) {
  std::mt19937 rng(seed);
  RecurrenceCase c;
  c.q = uniform(rng, {1, 1, tokens, d_k}), c.k = uniform(rng, {1, 1, tokens, d_k}),
  c.v = uniform(rng, {1, 1, tokens, d_v});
  normalise(c.k);
  c.options.rule = StateRule::delta;
  c.options.decay = uniform(rng, {1, 1, tokens}, DType::f64, -0.3, 0);
  c.options.beta = uniform(rng, {1, 1, tokens}, DType::f64, 0, 1);
  c.options.initial_state = uniform(rng, {1, 1, d_k, d_v});
  c.d_output = uniform(rng, {1, 1, tokens, d_v});
  return c.to(DType::bf16);
}

TEST_P(Bf16Recurrence, LongTextsAreThoseOfTheReference) {
  for_seeds(12, [](std::mt19937& rng) {
    const RecurrenceCase narrow = draw_recurrence(rng, 200, 150).to(DType::bf16), wide = narrow.to(DType::f64);
    const LinearAttentionResult found = run(narrow), expected = run(wide);
    expect_near(found.output, expected.output, 0x1p-8, "output");
    expect_near(found.state, expected.state, 2e-6, "state");
  });
}

TEST_P(Bf16Recurrence, PiecesOfWholeChunksHaveTheBitsOfTheWhole) {
  const RecurrenceCase whole = gated_text(150, 40, 70, 21);
  const LinearAttentionResult at_once = run(whole);
  for (const std::int64_t cut : {32, 64, 128}) {
    RecurrenceCase rest = tokens_of(whole, cut, 150);
    const LinearAttentionResult before = run(tokens_of(whole, 0, cut));
    rest.options.initial_state = before.state;
    const LinearAttentionResult after = run(rest);
    expect_same_bits(before.output, at_once.output.slice(2, 0, cut).contiguous(), "the first piece");
    expect_same_bits(after.output, at_once.output.slice(2, cut, 150).contiguous(), "the rest");
    expect_same_bits(after.state, at_once.state, "state");
  }
}

// A number that is not finite: what it is, where it is put, and the first token that it may reach.
struct Unusual {
  const char* what;
  void (*put)(RecurrenceCase&);
  std::int64_t token;
};

constexpr Unusual kUnusual[] = {
    {"NaN in a value",
     [](RecurrenceCase& c) {
       c.v.set({0, 0, 70, 33}, kNan);
     },
     70},
    {"infinity in a value",
     [](RecurrenceCase& c) {
       c.v.set({0, 0, 63, 2}, kInf);
     },
     63},
    {"NaN in a key",
     [](RecurrenceCase& c) {
       c.k.set({0, 0, 40, 3}, kNan);
     },
     40},
    {"infinity in a query",
     [](RecurrenceCase& c) {
       c.q.set({0, 0, 31, 0}, -kInf);
     },
     31},
    {"NaN in a decay",
     [](RecurrenceCase& c) {
       c.options.decay.set({0, 0, 90}, kNan);
     },
     90},
    {"infinity in a decay",
     [](RecurrenceCase& c) {
       c.options.decay.set({0, 0, 90}, kInf);
     },
     90},
    {"infinity in a strength",
     [](RecurrenceCase& c) {
       c.options.beta.set({0, 0, 95}, kInf);
     },
     95},
    {"NaN in the state",
     [](RecurrenceCase& c) {
       c.options.initial_state.set({0, 0, 5, 6}, kNan);
     },
     0},
    {"NaN whose upper half is that of infinity in the state",
     [](RecurrenceCase& c) {
       c.options.rule = StateRule::plain, c.options.beta = {};
       c.options.initial_state = c.options.initial_state.to(DType::f32);
       c.options.initial_state.data<float>()[7] = std::bit_cast<float>(0x7f800001u);
     },
     0},
    {"infinities in the state", [](RecurrenceCase& c) { c.options.initial_state.slice(3, 34, 36).fill(-kInf); }, 0},
};

// Finite where it is by tokens, in float32, and near that; what is not finite is of the same kind.
void expect_of_one_kind(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what) {
  const std::vector<double> a = values(found), b = values(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i])) << what << " at " << i;
    if (std::isinf(b[i]) || std::isinf(a[i])) {
      ASSERT_EQ(a[i], b[i]) << what << " at " << i;
    } else if (!std::isnan(b[i])) {
      ASSERT_NEAR(a[i], b[i], tolerance * std::max(1., std::abs(b[i]))) << what << " at " << i;
    }
  }
}

TEST_P(Bf16Recurrence, WhatIsNotFiniteReachesWhatFollowsItAlone) {
  const RecurrenceCase text = gated_text(150, 40, 70, 22);
  const LinearAttentionResult clean = run(text);
  for (const Unusual& unusual : kUnusual) {
    SCOPED_TRACE(unusual.what);
    RecurrenceCase c = text;
    for (Tensor* t : {&c.q, &c.k, &c.v, &c.options.decay, &c.options.beta, &c.options.initial_state}) *t = t->clone();
    unusual.put(c);
    const LinearAttentionResult found = run(c), by_tokens = run(c.to(DType::f32));
    expect_of_one_kind(found.output, by_tokens.output, 0x1p-7, "output");
    expect_of_one_kind(found.state, by_tokens.state, 1e-5, "state");
    expect_same_bits(found.output.slice(2, 0, unusual.token / 32 * 32).contiguous(),
                     clean.output.slice(2, 0, unusual.token / 32 * 32).contiguous(), "earlier chunks");
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Bf16Recurrence, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace attn::test
