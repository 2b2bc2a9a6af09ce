// attention_backward() against central differences of attention(), in float64.
#include "attention/oracle.hpp"

namespace attn::test {
namespace {

TEST(AttentionBackward, EqualsFiniteDifferences) {
  for_seeds(40, [](std::mt19937& rng) {
    const Inputs in = random_inputs(rng, DType::f64, 1);
    const Tensor g = uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv});
    const auto loss = [&] { return dot(attention(in.q, in.k, in.v, in.options).output, g); };
    const AttentionGradient grad = attention_backward(scattered(rng, g), in.q, in.k, in.v, in.options);
    expect_gradient(grad.q, in.q, loss, 1e-5, 1e-8, "dq");
    expect_gradient(grad.k, in.k, loss, 1e-5, 1e-8, "dk");
    expect_gradient(grad.v, in.v, loss, 1e-5, 1e-8, "dv");
    EXPECT_EQ(grad.bias.defined(), in.options.mask.bias.defined());
  });
}

TEST(AttentionBackward, BiasGradientHasTheBiasShape) {
  for_seeds(30, [](std::mt19937& rng) {
    Inputs in = random_inputs(rng, DType::f64, 1);
    in.options.mask.bias = uniform(rng, broadcastable(rng, in.sizes));
    const Tensor g = uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv});
    const auto loss = [&] { return dot(attention(in.q, in.k, in.v, in.options).output, g); };
    expect_gradient(attention_backward(g, in.q, in.k, in.v, in.options).bias, in.options.mask.bias, loss, 1e-5, 1e-8,
                    "dbias");
  });
}

TEST(AttentionBackward, NarrowDTypesAreTheFloat64OneRounded) {
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 5e-6}, {DType::f16, 2e-3}, {DType::bf16, 2e-2}}) {
    for_seeds(10, [&, t = dtype, tol = tolerance](std::mt19937& rng) {
      Inputs in = random_inputs(rng, t, 1);
      const Tensor g = uniform(rng, {in.sizes.b, in.sizes.hq, in.sizes.tq, in.sizes.dv}, t);
      const AttentionGradient found = attention_backward(g, in.q, in.k, in.v, in.options);
      const auto wide = [](const Tensor& x) { return x.to(DType::f64); };
      AttentionOptions options = in.options;
      if (options.mask.bias.defined()) options.mask.bias = wide(options.mask.bias);
      const AttentionGradient expected = attention_backward(wide(g), wide(in.q), wide(in.k), wide(in.v), options);
      EXPECT_EQ(found.q.dtype(), t);
      EXPECT_EQ(found.k.dtype(), t);
      EXPECT_EQ(found.v.dtype(), t);
      expect_close(found.q, expected.q, tol, "dq", 1);
      expect_close(found.k, expected.k, tol, "dk", 1);
      expect_close(found.v, expected.v, tol, "dv");
      if (found.bias.defined()) {
        EXPECT_EQ(found.bias.dtype(), t);
      }
    });
  }
}

TEST(AttentionBackward, EmptySizes) {
  const auto ones = [](const Shape& shape) { return Tensor::ones(shape, DType::f64); };
  const auto no_keys =
      attention_backward(ones({1, 2, 3, 4}), ones({1, 2, 3, 5}), ones({1, 1, 0, 5}), ones({1, 1, 0, 4}));
  EXPECT_EQ(values(no_keys.q), std::vector<double>(30, 0));
  EXPECT_EQ(no_keys.k.shape(), (Shape{1, 1, 0, 5}));
  const auto no_heads =
      attention_backward(ones({1, 0, 3, 4}), ones({1, 0, 3, 5}), ones({1, 2, 2, 5}), ones({1, 2, 2, 4}));
  EXPECT_EQ(values(no_heads.k), std::vector<double>(20, 0));
  const auto no_queries =
      attention_backward(ones({1, 2, 0, 4}), ones({1, 2, 0, 5}), ones({1, 1, 2, 5}), ones({1, 1, 2, 4}));
  EXPECT_EQ(values(no_queries.v), std::vector<double>(8, 0));
}

TEST(AttentionBackward, RefusesAWrongOutputGradient) {
  const Tensor x = Tensor::ones({1, 2, 3, 4});
  expect_error(Error::Kind::shape, {"(1, 2, 3, 4)", "(1, 2, 3, 5)"}, [&] {
    attention_backward(Tensor::ones({1, 2, 3, 5}), x, x, x);
  });
  expect_error(Error::Kind::dtype, {"floating", "int64"}, [&] {
    attention_backward(Tensor::ones({1, 2, 3, 4}, DType::i64), x, x, x);
  });
  EXPECT_THROW(attention_backward({}, x, x, x), Error);
}

}  // namespace
}  // namespace attn::test
