// A random call of linear_attention(), in float64, and in other dtypes.
#pragma once

#include "attn/linear_attention.hpp"
#include "core/testing.hpp"

namespace attn::test {

struct RecurrenceCase {
  Tensor q, k, v, d_output, d_state;
  LinearAttentionOptions options;

  RecurrenceCase to(DType dtype) const {
    RecurrenceCase other = *this;
    for (Tensor* t : {&other.q, &other.k, &other.v, &other.d_output}) *t = t->to(dtype);
    return other;
  }
};

// Rows of length 1, as the delta rule needs them to stay bounded.
inline void normalise(const Tensor& x) {
  const std::int64_t d = x.size(-1), rows = x.numel() / d;
  for (std::int64_t r = 0; r < rows; ++r) {
    double* row = x.data<double>() + r * d;
    double sum = 1e-6;
    for (std::int64_t i = 0; i < d; ++i) sum += row[i] * row[i];
    for (std::int64_t i = 0; i < d; ++i) row[i] /= std::sqrt(sum);
  }
}

inline Tensor draw_decay(std::mt19937& rng, const Shape& shape) {
  const double least = std::vector<double>{-1e-6, -0.05, -1, -20}[static_cast<std::size_t>(pick(rng, 0, 3))];
  const Tensor decay = uniform(rng, shape, DType::f64, least, 0);
  for (std::int64_t i = 0; chance(rng, 0.2) && i < decay.numel(); i += pick(rng, 1, 40))
    decay.data<double>()[i] = chance(rng, 0.5) ? -kInf : 0;
  return decay;
}

inline void draw_sequences(std::mt19937& rng, std::int64_t batch, std::int64_t tokens, RecurrenceCase& c,
                           std::int64_t& states) {
  states = batch;
  if (batch == 1 && chance(rng, 0.4)) {
    states = pick(rng, 1, 4);
    std::vector<double> starts{0};
    for (std::int64_t s = 1; s < states; ++s) starts.push_back(static_cast<double>(pick(rng, 0, tokens)));
    starts.push_back(static_cast<double>(tokens));
    std::sort(starts.begin(), starts.end());
    c.options.starts = tensor(starts, {states + 1}, DType::i64);
  } else if (chance(rng, 0.3)) {
    c.options.lengths = Tensor::empty({batch}, DType::i64);
    for (std::int64_t b = 0; b < batch; ++b) c.options.lengths.set({b}, static_cast<double>(pick(rng, 0, tokens)));
  }
}

inline RecurrenceCase draw_recurrence(std::mt19937& rng, std::int64_t most_tokens, std::int64_t most_width) {
  RecurrenceCase c;
  const std::int64_t batch = pick(rng, 1, 2), tokens = pick(rng, 0, most_tokens);
  const std::int64_t d_k = pick(rng, 1, most_width), d_v = pick(rng, 1, most_width);
  const std::int64_t hv = std::vector<std::int64_t>{1, 2, 4}[static_cast<std::size_t>(pick(rng, 0, 2))];
  const std::int64_t hk = chance(rng, 0.5) ? hv : 1,
                     hq = std::vector<std::int64_t>{hv, 1, 2 * hv}[static_cast<std::size_t>(pick(rng, 0, 2))];
  std::int64_t states = batch;
  draw_sequences(rng, batch, tokens, c, states);
  c.options.heads = chance(rng, 0.5) ? HeadMap::grouped : HeadMap::tiled;
  c.options.rule = chance(rng, 0.7) ? StateRule::delta : StateRule::plain;
  c.q = uniform(rng, {batch, hq, tokens, d_k}), c.k = uniform(rng, {batch, hk, tokens, d_k});
  if (c.options.rule == StateRule::delta) normalise(c.k);
  c.v = uniform(rng, {batch, hv, tokens, d_v});
  const std::int64_t by = pick(rng, 0, 2);
  if (by == 1) c.options.decay = draw_decay(rng, {batch, hv, tokens});
  if (by == 2) c.options.decay = draw_decay(rng, {batch, hv, tokens, d_k});
  if (c.options.rule == StateRule::delta && chance(rng, 0.8)) {
    c.options.beta = uniform(rng, {batch, hv, tokens}, DType::f64, 0, chance(rng, 0.3) ? 2 : 1);
    for (std::int64_t i = 0; chance(rng, 0.3) && i < c.options.beta.numel(); i += pick(rng, 1, 9))
      c.options.beta.data<double>()[i] = chance(rng, 0.5) ? 0 : 1;
  }
  if (chance(rng, 0.5)) c.options.initial_state = uniform(rng, {states, hv, d_k, d_v});
  if (chance(rng, 0.3)) c.options.scale = 0.7;
  c.d_output = uniform(rng, {batch, std::max(hq, hv), tokens, d_v});
  if (chance(rng, 0.5)) c.d_state = uniform(rng, {states, hv, d_k, d_v});
  return c;
}

inline LinearAttentionResult run(const RecurrenceCase& c) { return linear_attention(c.q, c.k, c.v, c.options); }
inline LinearAttentionGradient gradients(const RecurrenceCase& c) {
  return linear_attention_backward(c.d_output, c.d_state, c.q, c.k, c.v, c.options);
}

// Within `tolerance` of the largest, or of 0.1: what terms near 1 leave of each other is not known better.
inline void expect_near(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(found.defined(), expected.defined()) << what;
  if (!found.defined()) return;
  ASSERT_EQ(found.shape(), expected.shape()) << what;
  const std::vector<double> a = values(found), b = values(expected);
  double largest = 0.1;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * largest) << what << " at " << i << ", largest " << largest;
}

inline void expect_near(const LinearAttentionGradient& a, const LinearAttentionGradient& b, double tolerance) {
  expect_near(a.q, b.q, tolerance, "dq"), expect_near(a.k, b.k, tolerance, "dk");
  expect_near(a.v, b.v, tolerance, "dv"), expect_near(a.decay, b.decay, tolerance, "d_decay");
  expect_near(a.beta, b.beta, tolerance, "d_beta");
  expect_near(a.initial_state, b.initial_state, tolerance, "d_initial_state");
}

inline void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  EXPECT_TRUE(a.defined() == b.defined() && (!a.defined() || identical(a, b))) << what;
}

// Draws a case of one sequence, gated, with channels that keep different shares.
inline RecurrenceCase one_text(std::int64_t tokens, std::int64_t d, unsigned seed) {
  std::mt19937 rng(seed);
  RecurrenceCase c;
  c.q = uniform(rng, {1, 2, tokens, d}), c.k = uniform(rng, {1, 2, tokens, d}), c.v = uniform(rng, {1, 2, tokens, d});
  normalise(c.k);
  c.options.rule = StateRule::delta;
  c.options.decay = uniform(rng, {1, 2, tokens, d}, DType::f64, -0.3, 0);
  c.options.beta = uniform(rng, {1, 2, tokens}, DType::f64, 0, 1);
  c.d_output = uniform(rng, {1, 2, tokens, d});
  return c.to(DType::f32);
}

inline RecurrenceCase tokens_of(const RecurrenceCase& c, std::int64_t begin, std::int64_t end) {
  RecurrenceCase part = c;
  for (Tensor* t : {&part.q, &part.k, &part.v, &part.d_output, &part.options.decay, &part.options.beta})
    if (t->defined()) *t = t->slice(2, begin, end);
  return part;
}

}  // namespace attn::test
