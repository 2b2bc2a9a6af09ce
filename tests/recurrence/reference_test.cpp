// The reference: its gradient by finite differences, edges of sizes, and what is refused.
#include "case.hpp"

namespace attn::test {
namespace {

TEST(RecurrenceReference, GradientsEqualFiniteDifferences) {
  for_seeds(30, [](std::mt19937& rng) {
    RecurrenceCase c = draw_recurrence(rng, 6, 4);
    if (c.q.numel() == 0) return;
    if (c.options.decay.defined()) c.options.decay = uniform(rng, c.options.decay.shape(), DType::f64, -1, -0.01);
    const auto loss = [&] {
      const LinearAttentionResult r = linear_attention(c.q, c.k, c.v, c.options);
      return dot(r.output, c.d_output) + (c.d_state.defined() ? dot(r.state, c.d_state) : 0);
    };
    const LinearAttentionGradient g = linear_attention_backward(c.d_output, c.d_state, c.q, c.k, c.v, c.options);
    expect_gradient(g.q, c.q, loss), expect_gradient(g.k, c.k, loss), expect_gradient(g.v, c.v, loss);
    if (c.options.decay.defined()) expect_gradient(g.decay, c.options.decay, loss);
    if (c.options.beta.defined()) expect_gradient(g.beta, c.options.beta, loss);
    if (c.options.initial_state.defined()) expect_gradient(g.initial_state, c.options.initial_state, loss);
  });
}

TEST(LinearAttention, OfNoTokensLeavesTheState) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    LinearAttentionOptions options;
    options.initial_state = Tensor::full({2, 1, 3, 4}, 0.5, dtype);
    const Tensor q = Tensor::empty({2, 1, 0, 3}, dtype), v = Tensor::empty({2, 1, 0, 4}, dtype);
    const LinearAttentionResult r = linear_attention(q, q, v, options);
    EXPECT_EQ(r.output.shape(), (Shape{2, 1, 0, 4}));
    EXPECT_TRUE(identical(r.state, options.initial_state));
    const Tensor d_state = Tensor::full({2, 1, 3, 4}, 2, dtype);
    EXPECT_TRUE(identical(linear_attention_backward(v, d_state, q, q, v, options).initial_state, d_state));
  }
  const Tensor none = Tensor::empty({0, 2, 5, 3});
  EXPECT_EQ(linear_attention(none, none, none).state.shape(), (Shape{0, 2, 3, 3}));
}

TEST(LinearAttention, RefusesWhatDoesNotFit) {
  using Kind = Error::Kind;
  const Tensor x = Tensor::zeros({2, 4, 6, 8});
  const auto call = [&](const LinearAttentionOptions& options) { return [=] { linear_attention(x, x, x, options); }; };
  expect_error(Kind::shape, {"[linear_attention]", "(b, hq, t, d_k)"}, [&] { linear_attention(x, x.select(0, 0), x); });
  expect_error(Kind::shape, {"hk that divides hv"}, [&] { linear_attention(x, x, x.slice(1, 0, 2)); });
  expect_error(Kind::shape, {"hq that divides hv"}, [&] { linear_attention(x.slice(1, 0, 3), x, x); });
  expect_error(Kind::dtype, {"one dtype"}, [&] { linear_attention(x, x.to(DType::f64), x); });
  expect_error(Kind::dtype, {"floating"}, [&] { linear_attention(x.to(DType::i64), x, x); });
  expect_error(Kind::argument, {"holds nothing"}, [&] { linear_attention(x, {}, x); });
  expect_error(Kind::argument, {"finite scale"}, call({.scale = kNan}));
  for (const double scale : {1e-38, 1e39, 1e300})
    expect_error(Kind::argument, {"magnitude from 2^-100 to 2^100"}, call({.scale = scale}));
  expect_error(Kind::shape, {"decay of shape"}, call({.decay = Tensor::zeros({2, 4, 5})}));
  expect_error(Kind::dtype, {"decay of a floating"}, call({.decay = Tensor::zeros({2, 4, 6}, DType::i64)}));
  expect_error(Kind::argument, {"beta with the delta rule", "multiply v"}, call({.beta = Tensor::zeros({2, 4, 6})}));
  expect_error(Kind::shape, {"beta of shape"}, call({.rule = StateRule::delta, .beta = Tensor::zeros({2, 6, 4})}));
  expect_error(Kind::shape, {"initial_state of shape"}, call({.initial_state = Tensor::zeros({4, 8, 8})}));
  expect_error(Kind::argument, {"batch of 1"}, call({.starts = tensor({0, 6}, {2}, DType::i64)}));
  expect_error(Kind::argument, {"lengths from 0 to t = 6", "7"}, call({.lengths = tensor({1, 7}, {2}, DType::i64)}));
  expect_error(Kind::dtype, {"int64"}, call({.lengths = Tensor::zeros({2})}));
  const Tensor huge = Tensor::zeros({1, 1, 1, 1}).expand({1, 1, 1, std::int64_t{1} << 20});
  expect_error(Kind::shape, {"2^28"}, [&] { linear_attention(huge, huge, huge); });
  expect_error(Kind::shape, {"d_output of shape"}, [&] { linear_attention_backward(x.slice(2, 0, 5), {}, x, x, x); });
  expect_error(Kind::shape, {"d_state of shape"}, [&] { linear_attention_backward(x, x, x, x, x); });
  const Tensor one = x.slice(0, 0, 1);
  for (const std::vector<double>& starts : {std::vector<double>{0, 5}, {1, 6}, {0, 4, 3, 6}}) {
    LinearAttentionOptions options;
    options.starts = tensor(starts, {static_cast<std::int64_t>(starts.size())}, DType::i64);
    expect_error(Kind::argument, {"starts that begin at 0"}, [&] { linear_attention(one, one, one, options); });
  }
}

}  // namespace
}  // namespace attn::test
