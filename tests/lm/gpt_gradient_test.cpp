// Gradients against finite differences in float64: the library's float32 gradient of each piece, and of every
// parameter of whole models, within 1e-5 of the largest element.
#include "attn/cross_entropy.hpp"
#include "lm/gpt_double.hpp"

namespace attn::test {
namespace {

constexpr double kStep = 1e-5, kOfLargest = 1e-5;

// Central differences of loss() in each element of x (float64).
Tensor differences(const Tensor& x, const std::function<double()>& loss) {
  Tensor result = Tensor::empty(x.shape(), DType::f64);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    double& value = x.data<double>()[i];
    const double kept = value;
    value = kept + kStep;
    const double above = loss();
    value = kept - kStep;
    result.data<double>()[i] = (above - loss()) / (2 * kStep);
    value = kept;
  }
  return result;
}

void expect_relative(const Tensor& found, const Tensor& expected, const std::string& what, double least = 1e-6) {
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.shape(), expected.shape()) << what;
  double largest = least;  // a gradient that is zero but for rounding has no digits to compare
  for (const double x : values(expected)) largest = std::max(largest, std::fabs(x));
  const auto a = values(found), b = values(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::fabs(a[i] - b[i]), kOfLargest * largest + 1e-9) << what << ", element " << i << " of " << a[i];
  }
}

TEST(GptGradients, LayerNorm) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t rows = pick(rng, 1, 5), width = pick(rng, 5, 40);
    const Tensor x = uniform(rng, {rows, width}, DType::f64, -3, 3), dy = uniform(rng, {rows, width});
    const Tensor weight = uniform(rng, {width}), bias = uniform(rng, {width});
    LayerNorm norm(width, 1e-3);
    norm.weight.value = weight.to(DType::f32), norm.bias.value = bias.to(DType::f32);
    const auto loss = [&] { return dot(layer_norm_double(x, weight, bias, 1e-3), dy); };
    const Tensor y = norm.forward(x.to(DType::f32));
    expect_close(y, layer_norm_double(x, weight, bias, 1e-3), 2e-6, "output");
    const Tensor dx = norm.backward(dy.to(DType::f32)).x;
    expect_relative(dx, differences(x, loss), "dx");
    expect_relative(norm.weight.grad, differences(weight, loss), "weight");
    expect_relative(norm.bias.grad, differences(bias, loss), "bias");
    // The gradient of a residual path is added.
    const Tensor residual = uniform(rng, {rows, width}, DType::f32), kept = residual.clone();
    const Tensor both = norm.backward(dy.to(DType::f32), residual);
    expect_close(both, ref::add(kept, dx), 1e-6, "residual");
    EXPECT_TRUE(identical(residual, kept));
  });
}

TEST(GptGradients, GeluOverItsWholeRange) {
  for (const Activation form : {Activation::gelu_tanh, Activation::gelu}) {
    std::vector<double> at;
    for (double v = -40; v <= 40; v += 0.037) at.push_back(v);
    for (const double v : {0.0, -0.0, 1e-30, -1e-30, 1e20, -1e20, 3e38, -3e38, -5.4, 5.4}) at.push_back(v);
    const Tensor x = tensor(at, {static_cast<std::int64_t>(at.size())}, DType::f32);
    const Tensor wide = x.to(DType::f64), y = gelu(x, form), expected = gelu_double(wide, form);
    const Tensor slope = gelu_backward(Tensor::ones(x.shape()), x, form);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double v = wide.at({i}), e = expected.at({i});
      EXPECT_NEAR(y.at({i}), e, 1e-6 * std::fabs(e) + 4e-7) << v;
      const auto f = [&](double u) { return gelu_double(Tensor::full({1}, u, DType::f64), form).item(); };
      const double expected_slope = std::fabs(v) > 1e6 ? (v > 0 ? 1 : 0) : (f(v + kStep) - f(v - kStep)) / (2 * kStep);
      EXPECT_NEAR(slope.at({i}), expected_slope, 2e-6) << v;
    }
    // The lower tail keeps its digits, relative to itself; the tanh form's own reference cancels there.
    if (form == Activation::gelu) {
      for (double v = -8; v < 0; v += 0.11) {
        const double found = gelu(Tensor::full({1}, v), form).item();
        const double exact = gelu_double(Tensor::full({1}, v).to(DType::f64), form).item();
        EXPECT_NEAR(found, exact, 2e-5 * std::fabs(exact)) << v;
      }
    }
  }
}

// The limits, where x · Φ'(x) alone would be inf · 0.
TEST(GptGradients, GeluAtInfinityIsTheIdentityOrNothing) {
  for (const Activation form : {Activation::gelu_tanh, Activation::gelu}) {
    const Tensor x = tensor({kInf, -kInf}, {2}, DType::f32);
    EXPECT_EQ(values(gelu_backward(Tensor::full({2}, 3), x, form)), (std::vector<double>{3, 0}));
    EXPECT_EQ(gelu(x, form).at({0}), kInf);
  }
}

TEST(GptGradients, CrossEntropy) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t rows = pick(rng, 1, 6), vocab = pick(rng, 1, 40);
    const Tensor logits = uniform(rng, {rows, vocab}, DType::f64, -6, 6);
    Tensor targets = Tensor::empty({rows}, DType::i64);
    for (std::int64_t i = 0; i < rows; ++i)
      targets.set({i}, chance(rng, 0.2) ? -100.0 : static_cast<double>(pick(rng, 0, vocab - 1)));
    const auto loss = [&] { return cross_entropy_double(logits, targets); };
    const Tensor found = logits.to(DType::f32).clone();
    const CrossEntropy entropy = cross_entropy(found, targets);
    EXPECT_NEAR(entropy.loss, loss(), 2e-6);
    cross_entropy_in_place(found, targets, entropy.count == 0 ? 0 : 1 / static_cast<double>(entropy.count));
    expect_relative(found, differences(logits, loss), "logits");
  });
}

TEST(GptGradients, WholeModels) {
  for_seeds(4, [](std::mt19937& rng) {
    GPTConfig config;
    config.vocab_size = pick(rng, 5, 11);
    config.context_length = pick(rng, 4, 6);
    config.layers = pick(rng, 1, 2);
    config.heads = pick(rng, 1, 3);
    config.width = config.heads * pick(rng, 3, 4);
    config.gelu = chance(rng, 0.5) ? Activation::gelu_tanh : Activation::gelu;
    config.tied = chance(rng, 0.5);
    Generator draws(rng());
    GPT model(config, draws);
    // Weights large enough for every path to matter, biases and LayerNorm included.
    for (Parameter* p : model.parameters()) p->value = uniform(rng, p->value.shape(), DType::f32, -0.5, 0.5);
    const Shape shape{pick(rng, 1, 3), pick(rng, 3, config.context_length)};
    Tensor ids = draws.randint(0, config.vocab_size, shape), targets = draws.randint(0, config.vocab_size, shape);
    if (chance(rng, 0.5)) targets.set({0, 1}, -100);
    DoubleGPT twin(model);
    EXPECT_NEAR(model.loss(ids, targets), twin.loss(ids, targets), 1e-5);
    model.backward();
    for (const Parameter* p : model.parameters()) {
      const Tensor expected = differences(twin.weights.at(p->name), [&] { return twin.loss(ids, targets); });
      expect_relative(p->grad, expected, p->name, 1e-3);
    }
    // The gradients also come by way of the logits: of Σ logits · g.
    const Tensor logits = model.forward(ids), g = uniform(rng, logits.shape(), DType::f32);
    expect_close(logits, twin.logits(ids), 1e-5, "logits");
    model.zero_grad();
    model.backward(g);
    const std::string name = config.tied ? "wte.weight" : "lm_head.weight";
    const Tensor expected = differences(twin.weights.at(name), [&] { return dot(twin.logits(ids), g); });
    for (const Parameter* p : model.parameters()) {
      if (p->name == name) expect_relative(p->grad, expected, "by the logits: " + name);
    }
  });
}

// The caller may reuse the memory of its ids at once.
TEST(GptGradients, AreThoseOfTheIdsThatWereRead) {
  Generator rng(1);
  GPT model({.vocab_size = 7, .context_length = 4, .layers = 1, .heads = 1, .width = 4}, rng);
  const auto gradient = [&](bool reused) {
    const Tensor ids = integers({1, 2, 3, 4});
    model.zero_grad();
    model.loss(ids, integers({2, 3, 4, 5}));
    if (reused) ids.fill(1 << 30);
    model.backward();
    return model.embedding.grad.clone();
  };
  EXPECT_TRUE(identical(gradient(true), gradient(false)));
  for (Parameter* table : {&model.embedding, &model.positions}) {
    model.zero_grad();
    table->grad = Tensor::zeros({2, 4});
    model.loss(integers({1, 2, 3, 4}), integers({2, 3, 4, 5}));
    expect_error(Error::Kind::shape, {table->name, "(2, 4)"}, [&] { model.backward(); });
  }
}

TEST(GptGradients, RefuseASmallerTableThanTheForwardPassHad) {
  Generator rng(1);
  GPT model({.vocab_size = 7, .context_length = 4, .layers = 1, .heads = 1, .width = 4}, rng);
  for (Parameter* table : {&model.embedding, &model.positions}) {
    const Tensor whole = table->value;
    for (const Tensor& other : {whole.slice(0, 0, 3).clone(), whole.slice(1, 0, 3).clone()}) {
      model.zero_grad();
      model.loss(integers({1, 2, 3, 4}), integers({2, 3, 4, 5}));
      table->value = other;
      expect_error(Error::Kind::shape, {other.shape().str()}, [&] { model.backward(); });
      EXPECT_THROW(model.loss(integers({1, 2, 3, 4}), integers({2, 3, 4, 5})), Error);
      table->value = whole;
    }
  }
}

}  // namespace
}  // namespace attn::test
