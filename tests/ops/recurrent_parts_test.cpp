// The parts around linear attention by their definitions in double, and their gradients by finite differences of these.
#include "attn/recurrent_parts.hpp"

#include <omp.h>

#include "core/testing.hpp"

namespace attn::test {
namespace {

struct ConvolutionCase {
  Tensor x, weight, d_output, d_state;
  ConvolutionOptions options;

  ConvolutionCase to(DType dtype) const {
    ConvolutionCase other = *this;
    for (Tensor* t :
         {&other.x, &other.weight, &other.d_output, &other.d_state, &other.options.bias, &other.options.initial_state})
      if (t->defined()) *t = t->to(dtype);
    return other;
  }
};

ConvolutionCase draw_convolution(std::mt19937& rng, std::int64_t most_tokens, std::int64_t most_channels) {
  ConvolutionCase c;
  const std::int64_t batch = pick(rng, 1, 3), tokens = pick(rng, 0, most_tokens), k = pick(rng, 1, 8);
  const std::int64_t channels = pick(rng, 1, most_channels);
  std::int64_t states = batch;
  if (batch == 1) {
    const double cut = static_cast<double>(pick(rng, 0, tokens));
    c.options.starts = tensor({0, cut, static_cast<double>(tokens)}, {3}, DType::i64);
    states = 2;
  } else if (chance(rng, 0.4)) {
    c.options.lengths = Tensor::empty({batch}, DType::i64);
    for (std::int64_t b = 0; b < batch; ++b) c.options.lengths.set({b}, static_cast<double>(pick(rng, 0, tokens)));
  }
  c.x = uniform(rng, {batch, tokens, channels}), c.weight = uniform(rng, {channels, k});
  c.d_output = uniform(rng, {batch, tokens, channels});
  if (chance(rng, 0.5)) c.options.bias = uniform(rng, {channels});
  if (chance(rng, 0.5)) c.options.initial_state = uniform(rng, {states, channels, k - 1});
  if (chance(rng, 0.5)) c.d_state = uniform(rng, {states, channels, k - 1});
  c.options.silu = chance(rng, 0.5);
  return c;
}

// Token by token, from a list of all inputs of a channel.
ConvolutionResult defined(const ConvolutionCase& c) {
  const ConvolutionOptions& o = c.options;
  const std::int64_t channels = c.x.size(2), k = c.weight.size(1);
  const std::int64_t states = o.starts.defined() ? o.starts.numel() - 1 : c.x.size(0);
  ConvolutionResult r{Tensor::zeros(c.x.shape(), DType::f64), Tensor::zeros({states, channels, k - 1}, DType::f64)};
  for (std::int64_t n = 0; n < states; ++n) {
    const bool packed = o.starts.defined();
    const auto number = [](const Tensor& t, std::int64_t i) { return static_cast<std::int64_t>(t.at({i})); };
    const std::int64_t b = packed ? 0 : n, first = packed ? number(o.starts, n) : 0;
    const std::int64_t end = packed                ? number(o.starts, n + 1)
                             : o.lengths.defined() ? number(o.lengths, n)
                                                   : c.x.size(1);
    for (std::int64_t ch = 0; ch < channels; ++ch) {
      std::vector<double> in;
      for (std::int64_t j = 0; j + 1 < k; ++j)
        in.push_back(o.initial_state.defined() ? o.initial_state.at({n, ch, j}) : 0);
      for (std::int64_t t = first; t < end; ++t) {
        in.push_back(c.x.at({b, t, ch}));
        double y = o.bias.defined() ? o.bias.at({ch}) : 0;
        for (std::int64_t j = 0; j < k; ++j)
          y += c.weight.at({ch, j}) * in[in.size() - static_cast<std::size_t>(k - j)];
        r.output.set({b, t, ch}, o.silu ? y / (1 + std::exp(-y)) : y);
      }
      for (std::int64_t j = 0; j + 1 < k; ++j)
        r.state.set({n, ch, j}, in[in.size() - static_cast<std::size_t>(k - 1 - j)]);
    }
  }
  return r;
}

ConvolutionResult run(const ConvolutionCase& c) { return causal_convolution(c.x, c.weight, c.options); }
ConvolutionGradient gradients(const ConvolutionCase& c) {
  return causal_convolution_backward(c.d_output, c.d_state, c.x, c.weight, c.options);
}

TEST(CausalConvolution, IsItsDefinition) {
  for_seeds(40, [](std::mt19937& rng) {
    const ConvolutionCase c = draw_convolution(rng, 20, chance(rng, 0.3) ? 150 : 9);
    const ConvolutionResult expected = defined(c), wide = run(c);
    expect_close(wide.output, expected.output, 1e-14, "output");
    expect_close(wide.state, expected.state, 0, "state");
    const ConvolutionCase narrow = c.to(DType::f32);
    const ConvolutionResult found = run(narrow), of_narrow = defined(narrow);
    EXPECT_EQ(found.output.dtype(), DType::f32);
    expect_close(found.output, of_narrow.output, 1e-6, "float32");
    expect_close(found.state, of_narrow.state, 0, "float32's state");
    const ConvolutionGradient g = gradients(narrow), of_wide = gradients(narrow.to(DType::f64));
    expect_close(g.x, of_wide.x, 2e-6, "dx"), expect_close(g.weight, of_wide.weight, 2e-6, "d_weight");
    const ConvolutionCase half = c.to(DType::bf16);
    EXPECT_EQ(run(half).state.dtype(), DType::bf16);
    expect_close(run(half).output, defined(half).output, 0x1p-8, "bfloat16");
  });
}

TEST(CausalConvolution, GradientsEqualFiniteDifferences) {
  for_seeds(20, [](std::mt19937& rng) {
    ConvolutionCase c = draw_convolution(rng, 7, 3);
    if (c.x.numel() == 0) return;
    const auto loss = [&] {
      const ConvolutionResult r = defined(c);
      return dot(r.output, c.d_output) + (c.d_state.defined() ? dot(r.state, c.d_state) : 0);
    };
    const ConvolutionGradient g = gradients(c);
    expect_gradient(g.x, c.x, loss), expect_gradient(g.weight, c.weight, loss);
    EXPECT_EQ(g.bias.defined(), c.options.bias.defined());
    if (g.bias.defined()) expect_gradient(g.bias, c.options.bias, loss);
    const bool has_state = c.options.initial_state.defined();
    EXPECT_EQ(g.initial_state.defined(), has_state);
    if (has_state && g.initial_state.numel() > 0) expect_gradient(g.initial_state, c.options.initial_state, loss);
  });
}

TEST(CausalConvolution, PiecesAndThreadsAndStridesChangeNoBit) {
  std::mt19937 rng(3);
  ConvolutionCase c;
  c.x = uniform(rng, {2, 50, 200}, DType::f32), c.weight = uniform(rng, {200, 4}, DType::f32);
  c.options.silu = true;
  const ConvolutionResult whole = run(c);
  for (const std::int64_t cut : {1, 2, 17, 49}) {
    ConvolutionCase first = c, rest = c;
    first.x = c.x.slice(1, 0, cut), rest.x = scattered(rng, c.x.slice(1, cut, 50));
    const ConvolutionResult before = run(first);
    rest.options.initial_state = before.state;
    const int threads = omp_get_max_threads();
    omp_set_num_threads(5);
    EXPECT_TRUE(identical(run(rest).output, whole.output.slice(1, cut, 50)));
    omp_set_num_threads(threads);
    EXPECT_TRUE(identical(run(rest).state, whole.state));
  }
}

TEST(CausalConvolution, RefusesWhatDoesNotFit) {
  using Kind = Error::Kind;
  const Tensor x = Tensor::zeros({2, 5, 6}), w = Tensor::zeros({6, 4});
  const auto call = [&](const ConvolutionOptions& options) { return [=] { causal_convolution(x, w, options); }; };
  expect_error(Kind::shape, {"weight (c, k)"}, [&] { causal_convolution(x, Tensor::zeros({5, 4})); });
  expect_error(Kind::shape, {"1 to 8"}, [&] { causal_convolution(x, Tensor::zeros({6, 9})); });
  expect_error(Kind::shape, {"1 to 8"}, [&] { causal_convolution(x, Tensor::zeros({6, 0})); });
  expect_error(Kind::argument, {"holds nothing"}, [&] { causal_convolution(x, {}); });
  expect_error(Kind::dtype, {"floating"}, [&] { causal_convolution(x.to(DType::i64), w); });
  expect_error(Kind::shape, {"bias of shape (6,)"}, call({.bias = Tensor::zeros({5})}));
  expect_error(Kind::shape, {"initial_state of shape (2, 6, 3)"}, call({.initial_state = Tensor::zeros({2, 6, 4})}));
  expect_error(Kind::argument, {"batch of 1"}, call({.starts = tensor({0, 5}, {2}, DType::i64)}));
  expect_error(Kind::argument, {"0 to t = 5", "6"}, call({.lengths = tensor({1, 6}, {2}, DType::i64)}));
  expect_error(Kind::dtype, {"int64"}, call({.lengths = Tensor::zeros({2})}));
  expect_error(Kind::shape, {"d_output"}, [&] { causal_convolution_backward(w, {}, x, w); });
  ConvolutionOptions falling{.starts = tensor({0, 4, 3, 5}, {4}, DType::i64)};
  expect_error(Kind::argument, {"begin at 0"}, [&] { causal_convolution(x.slice(0, 0, 1), w, falling); });
}

// y and its finite differences in double.
std::vector<double> l2_rows(const Tensor& x, double epsilon) {
  std::vector<double> all = values(x);
  const auto d = static_cast<std::size_t>(x.size(-1));
  for (std::size_t row = 0; row < all.size(); row += d) {
    double sum = epsilon;
    for (std::size_t i = 0; i < d; ++i) sum += all[row + i] * all[row + i];
    for (std::size_t i = 0; i < d; ++i) all[row + i] /= std::sqrt(sum);
  }
  return all;
}

TEST(L2Norm, IsItsDefinitionAndItsGradientFiniteDifferences) {
  for_seeds(10, [](std::mt19937& rng) {
    const Shape shape{pick(rng, 1, 90), pick(rng, 1, 40)};
    const Tensor x = uniform(rng, shape, DType::f32).to(DType::f64), dy = uniform(rng, shape, DType::f32);
    for (const double epsilon : {1e-6, 0.1}) {
      expect_close(l2_norm(x.to(DType::f32), epsilon), tensor(l2_rows(x, epsilon), shape), 5e-7, "y");
      const Tensor dx = l2_norm_backward(dy, x.to(DType::f32), epsilon);
      if (epsilon > 1e-6)
        expect_gradient(
            dx, x, [&] { return dot(tensor(l2_rows(x, epsilon), shape), dy); }, 1e-5, 2e-6);
    }
  });
  EXPECT_EQ(values(l2_norm(Tensor::zeros({2, 3}))), std::vector<double>(6, 0));
  EXPECT_EQ(values(l2_norm(Tensor::zeros({2, 90}), 0x1p-126)), std::vector<double>(180, 0));
  for (const double epsilon : {0.0, -1.0, 1e-50, 1e39, kNan, kInf}) {
    expect_error(Error::Kind::argument, {"[l2_norm]", "epsilon > 0"}, [&] { l2_norm(Tensor::zeros({2, 3}), epsilon); });
  }
  expect_error(Error::Kind::dtype, {"[l2_norm]", "float32"}, [] { l2_norm(Tensor::zeros({2, 3}, DType::f64)); });
  expect_error(Error::Kind::shape, {"[l2_norm_backward]"}, [] {
    l2_norm_backward(Tensor::zeros({2, 2}), Tensor::zeros({2, 3}));
  });
}

TEST(GatedNorm, IsItsDefinitionAndItsGradientFiniteDifferences) {
  for_seeds(8, [](std::mt19937& rng) {
    const std::int64_t d = pick(rng, 1, 40);
    const Shape shape{pick(rng, 1, 20), d};
    const double epsilon = 0.01;
    const Tensor x = uniform(rng, shape, DType::f32).to(DType::f64),
                 z = uniform(rng, shape, DType::f32, -4, 4).to(DType::f64);
    const Tensor w = uniform(rng, {d}, DType::f32).to(DType::f64), dy = uniform(rng, shape, DType::f32);
    for (const Activation act : {Activation::silu, Activation::sigmoid}) {
      for (const GatedNormOrder order : {GatedNormOrder::before_gate, GatedNormOrder::after_gate}) {
        const auto defined = [&] {
          const std::vector<double> in = values(x), gate = values(z), scale = values(w);
          std::vector<double> y(in.size());
          for (std::size_t row = 0; row < in.size(); row += static_cast<std::size_t>(d)) {
            const auto opened = [&](std::size_t i) {
              return (act == Activation::silu ? gate[i] : 1) / (1 + std::exp(-gate[i]));
            };
            const auto at = [&](std::size_t i) {
              return order == GatedNormOrder::after_gate ? in[i] * opened(i) : in[i];
            };
            double sum = 0;
            for (std::size_t i = row; i < row + static_cast<std::size_t>(d); ++i) sum += at(i) * at(i);
            for (std::size_t i = row; i < row + static_cast<std::size_t>(d); ++i) {
              y[i] = at(i) / std::sqrt(sum / static_cast<double>(d) + epsilon) * scale[i - row];
              if (order == GatedNormOrder::before_gate) y[i] *= opened(i);
            }
          }
          return tensor(y, shape);
        };
        GatedNorm norm(d, epsilon, "norm", act, order);
        norm.norm.weight.value = w.to(DType::f32);
        const Tensor x32 = x.to(DType::f32), z32 = z.to(DType::f32);
        expect_close(norm.forward(x32, z32), defined(), 1e-6, "y");
        const GatedNorm::Gradient g = norm.backward(dy);
        const auto loss = [&] { return dot(defined(), dy); };
        expect_gradient(g.x, x, loss, 1e-5, 2e-6), expect_gradient(g.gate, z, loss, 1e-5, 2e-6);
        expect_gradient(norm.norm.weight.grad, w, loss, 1e-5, 2e-6);
      }
    }
  });
  GatedNorm norm(3, 1e-6);
  expect_error(Error::Kind::argument, {"forward() before"}, [&] { norm.backward(Tensor::zeros({2, 3})); });
  expect_error(Error::Kind::shape, {"one shape"}, [&] { norm.forward(Tensor::zeros({2, 3}), Tensor::zeros({3})); });
}

}  // namespace
}  // namespace attn::test
