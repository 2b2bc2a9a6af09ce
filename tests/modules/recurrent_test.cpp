// LinearAttention, DeltaNet and GatedDeltaNet: their steps by the definition in double, gradients by finite
// differences, pieces on a cache against the whole text.
#include "attn/recurrent_modules.hpp"
#include "modules/helpers.hpp"
#include "ops/stored.hpp"

namespace attn::test {
namespace {

using Layer = RecurrentLayer;
using Recurrent = Layer::Kind;

constexpr Recurrent kRecurrent[] = {Recurrent::linear, Recurrent::delta, Recurrent::gated_delta};

std::unique_ptr<Layer> made(Recurrent kind, const ModuleConfig& config, std::int64_t convolution = 0) {
  Generator rng(5);
  auto layer = std::make_unique<Layer>(kind, config, rng, convolution);
  for (Parameter* p : layer->parameters())
    if (p->value.rank() > 1) p->value = draw(p->value.shape(), 7 + static_cast<std::uint64_t>(p->value.numel()));
  return layer;
}

const ModuleConfig kRecurrentConfig{.d_in = 5, .d_out = 6, .num_heads = 2, .qkv_bias = true};

// Token by token, head by head, of the trace's queries, keys and values alone, and of the parameters.
TEST(RecurrentModules, StepsAreTheDefinition) {
  for (const Recurrent kind : kRecurrent) {
    const auto layer = made(kind, kRecurrentConfig);
    const Tensor x = draw({7, 5});
    Trace t;
    const Tensor z = layer->forward(x, &t);
    const StateDict w = layer->state_dict();
    const auto unit = [&](const Tensor& from, std::int64_t h, std::int64_t i) {
      std::vector<double> y = values(from.select(0, h).select(0, i));
      double sum = 1e-6;
      for (double& v : y) v = kind == Recurrent::linear ? (v > 0 ? v + 1 : std::exp(v)) : v / (1 + std::exp(-v));
      for (const double v : y) sum += v * v;
      for (double& v : y) v /= kind == Recurrent::linear ? 1 : std::sqrt(sum);
      return y;
    };
    const auto gate = [&](const char* name, std::int64_t h, std::int64_t i) {
      return dot(w.at(name).select(0, h), x.select(0, i));
    };
    for (std::int64_t h = 0; h < 2; ++h) {
      double s[3][3] = {}, norm[3] = {};
      for (std::int64_t i = 0; i < 7; ++i) {
        const auto q = unit(t["queries"], h, i), k = unit(t["keys"], h, i),
                   v = values(t["values"].select(0, h).select(0, i));
        const double beta = kind == Recurrent::linear ? 1 : 1 / (1 + std::exp(-gate("W_beta.weight", h, i)));
        double kept = 1;
        if (kind == Recurrent::gated_delta) {
          const double a = std::exp(w.at("A_log").at({h})),
                       from = gate("W_alpha.weight", h, i) + w.at("dt_bias").at({h});
          kept = std::exp(-a * std::log1p(std::exp(from)));
        }
        std::vector<double> context(3);
        for (std::size_t c = 0; c < 3; ++c) {
          double recalled = 0;
          for (std::size_t d = 0; d < 3; ++d) s[d][c] *= kept, recalled += s[d][c] * k[d];
          const double written = kind == Recurrent::linear ? v[c] : beta * (v[c] - recalled);
          for (std::size_t d = 0; d < 3; ++d) s[d][c] += k[d] * written, context[c] += s[d][c] * q[d];
        }
        double sum = 0, squares = 0;
        for (std::size_t d = 0; d < 3; ++d) norm[d] += k[d], sum += q[d] * norm[d];
        for (double& c : context) c /= kind == Recurrent::linear ? sum : std::sqrt(3.0), squares += c * c / 3;
        for (std::int64_t c = 0; c < 3; ++c) {
          const double found = t["context"].at({h, i, c}), expected = context[static_cast<std::size_t>(c)];
          ASSERT_NEAR(found, expected, 2e-6) << i;
          double weighted = 0;
          for (std::int64_t j = 0; j < 7; ++j) weighted += t["weights"].at({h, i, j}) * t["values"].at({h, j, c});
          ASSERT_NEAR(weighted, expected, 2e-6) << "A · v";
          double normed = expected / std::sqrt(squares + 1e-6);
          if (kind == Recurrent::gated_delta) {
            const double g = dot(w.at("W_gate.weight").select(0, 3 * h + c), x.select(0, i));
            normed *= g / (1 + std::exp(-g));
          }
          ASSERT_NEAR(t["merged"].at({i, 3 * h + c}), kind == Recurrent::linear ? expected : normed, 1e-5);
        }
      }
    }
    for (std::int64_t i = 0; i < 7; ++i)
      for (std::int64_t c = 0; c < 6; ++c)
        ASSERT_NEAR(z.at({i, c}),
                    dot(w.at("out_proj.weight").select(0, c), t["merged"].select(0, i)) + w.at("out_proj.bias").at({c}),
                    1e-5);
  }
}

TEST(RecurrentModules, GradientsEqualFiniteDifferences) {
  for (const Recurrent kind : kRecurrent) {
    for (const std::int64_t convolution : {0, 3}) {
      if (kind == Recurrent::linear && convolution > 0) continue;
      const auto layer = made(kind, kRecurrentConfig, convolution);
      const Tensor x = draw({2, 4, 5}), dz = draw({2, 4, 6}, 3);
      layer->forward(x);
      const Tensor dx = layer->backward(dz).x;
      const auto loss = [&] { return dot(layer->forward(x), dz); };
      expect_gradient(dx, x, loss, 1e-3, 5e-3, "dx");
      for (Parameter* p : layer->parameters()) expect_gradient(p->grad, p->value, loss, 1e-3, 5e-3, p->name);
    }
  }
}

TEST(RecurrentModules, PiecesOnACacheHaveTheBitsOfTheWhole) {
  for (const Recurrent kind : kRecurrent) {
    for (const std::int64_t convolution : {0, 4}) {
      if (kind == Recurrent::linear && convolution > 0) continue;
      const auto layer = made(kind, kRecurrentConfig, convolution);
      const Tensor x = draw({2, 12, 5}), whole = layer->forward(x);
      RecurrentCache cache(layer->cache_config(2));
      const std::size_t bytes = cache.bytes();
      for (const auto& [first, last] : {std::pair{0, 4}, {4, 8}, {8, 12}}) {
        const Tensor z = layer->forward(x.slice(1, first, last), cache);
        EXPECT_TRUE(identical(z, whole.slice(1, first, last).contiguous())) << first;
      }
      EXPECT_EQ(cache.length(1), 12);
      EXPECT_EQ(cache.bytes(), bytes) << "it does not grow";
      // One item alone, a token at a time, on a clone that has seen the first six.
      RecurrentCache other(layer->cache_config(2));
      layer->forward(x.slice(1, 0, 6), other);
      const auto copy = other.clone();
      for (std::int64_t i = 6; i < 12; ++i) {
        const Tensor z = layer->forward(x.slice(0, 1, 2).slice(1, i, i + 1), *copy, 1);
        expect_close(z, whole.slice(0, 1, 2).slice(1, i, i + 1), 1e-6, "a token");
      }
      EXPECT_EQ(copy->length(0), 6);
      EXPECT_EQ(other.length(1), 6);
    }
  }
}

TEST(RecurrentModules, PackedTextsStayApart) {
  const auto layer = made(Recurrent::gated_delta, kRecurrentConfig, 4);
  const Tensor x = draw({1, 9, 5});
  const Tensor first = layer->forward(x.slice(1, 0, 4)), rest = layer->forward(x.slice(1, 4, 9));
  layer->set_texts(tensor({0, 4, 9}, {3}, DType::i64));
  const Tensor both = layer->forward(x);
  expect_close(both.slice(1, 0, 4), first, 1e-6, "the first");
  expect_close(both.slice(1, 4, 9), rest, 1e-6, "the second");
  const Tensor dz = draw({1, 9, 6}, 3), dx = layer->backward(dz).x;
  layer->forward(x);
  layer->set_texts({});  // which the next pass follows, and not the gradient of the last
  EXPECT_TRUE(identical(layer->backward(dz).x, dx));
}

TEST(RecurrentModules, TakeNoTokensAtAll) {
  for (const Recurrent kind : kRecurrent) {
    const auto layer = made(kind, kRecurrentConfig, kind == Recurrent::linear ? 0 : 4);
    for (const Shape& shape : {Shape{2, 0, 5}, Shape{0, 3, 5}}) {
      Trace t;
      const Tensor z = layer->forward(Tensor::zeros(shape), &t);
      EXPECT_EQ(z.shape(), (Shape{shape[0], shape[1], 6}));
      EXPECT_EQ(t["weights"].shape(), (Shape{shape[0], 2, shape[1], shape[1]}));
      EXPECT_EQ(layer->backward(z).x.shape(), shape);
    }
  }
}

TEST(RecurrentModules, ACacheHoldsNoMoreThanTheContext) {
  ModuleConfig config = kRecurrentConfig;
  config.context_length = 6;
  const auto layer = made(Recurrent::delta, config);
  RecurrentCache cache(layer->cache_config(2));
  layer->forward(draw({1, 5, 5}), cache, 1);
  expect_error(Error::Kind::shape, {"context_length = 6", "5 in the cache and 2"}, [&] {
    layer->forward(draw({2, 2, 5}), cache);
  });
  EXPECT_EQ(layer->forward(draw({1, 6, 5}), cache, 0).shape(), (Shape{1, 6, 6}));
  expect_error(Error::Kind::shape, {"context_length = 6", "found 7"}, [&] { layer->forward(draw({7, 5})); });
}

// All matrices are kept in fewer bits, the convolution's too.
TEST(RecurrentModules, MatricesAreKeptInFewerBits) {
  const Tensor x = draw({2, 9, 5});
  for (const auto& [dtype, limit] : {std::pair{DType::bf16, 0.02}, {DType::i8, 0.04}}) {
    const auto layer = made(Recurrent::gated_delta, kRecurrentConfig, 4);
    const Tensor wide = layer->forward(x);
    store_matrices(layer->parameters(), dtype);
    expect_close(layer->forward(x), wide, limit, name(dtype).data());
  }
}

TEST(RecurrentCacheTest, RefusesWhatAStateCannotDo) {
  RecurrentCache cache({.batch = 1, .heads = 2, .key_dim = 3, .value_dim = 4, .dtype = DType::bf16});
  const Tensor state = Tensor::full({1, 2, 3, 4}, 0.3), window = Tensor::empty({1, 0, 0});
  cache.update(state, window, 5), cache.update(state, window, 2);
  EXPECT_EQ(cache.state().at({0, 0, 0, 0}), static_cast<float>(bfloat16(0.3f))) << "kept in bfloat16";
  const Tensor k = Tensor::zeros({1, 2, 1, 3});
  using ErrorKind = Error::Kind;
  expect_error(ErrorKind::argument, {"none can be taken away"}, [&] { cache.append(k, k); });
  expect_error(ErrorKind::argument, {"none can be taken away", "3 tokens"}, [&] { cache.forget(0, 3); });
  expect_error(ErrorKind::argument, {"before the last update", "found 6"}, [&] { cache.truncate(0, 6); });
  expect_error(ErrorKind::argument, {"state() to be read"}, [&] { cache.attend(k, {}, {}); });
  expect_error(ErrorKind::argument, {"an item from 0 to 0"}, [&] { cache.length(1); });
  expect_error(ErrorKind::shape, {"a state (1, 2, 3, 4)"}, [&] { cache.update(k, window, 1); });
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t tokens : {std::int64_t{-1}, most})
    expect_error(ErrorKind::argument, {"tokens from 0"}, [&] { cache.update(state, window, tokens); });
  EXPECT_EQ(cache.length(0), 7);
  cache.truncate(0, 5);
  EXPECT_EQ(cache.length(0), 5);
  cache.truncate(0, 0);
  EXPECT_EQ(values(cache.state()), std::vector<double>(24, 0));
  expect_error(ErrorKind::dtype, {"float32 or bfloat16"}, [] { RecurrentCache({.dtype = DType::f16}); });
}

TEST(RecurrentCacheTest, GivesCopiesOfItsStates) {
  RecurrentCache cache({.batch = 2});
  cache.update(Tensor::ones({2, 1, 1, 1}), cache.window(), 1);
  const auto clone = cache.clone();
  cache.state(0).fill(9), cache.state().fill(9);
  EXPECT_EQ(values(cache.state()), (std::vector<double>{1, 1}));
  EXPECT_EQ(values(clone->state(0)), std::vector<double>{1});
  cache.truncate(1, 0);
  cache.state(1).fill(9);
  EXPECT_EQ(values(cache.state()), (std::vector<double>{1, 0}));
}

TEST(RecurrentModules, RefuseWhatAStateDoesNotHave) {
  Generator rng(1);
  const auto refuse = [&](const std::vector<std::string>& parts, const ModuleConfig& config,
                          std::int64_t convolution = 0) {
    expect_error(Error::Kind::argument, parts, [&] { Layer(Recurrent::delta, config, rng, convolution); });
  };
  refuse({"causal"}, {.d_in = 3, .d_out = 4, .causal = false});
  refuse({"no dropout, window"}, {.d_in = 3, .d_out = 4, .dropout = 0.5});
  refuse({"no dropout, window"}, {.d_in = 3, .d_out = 4, .window = 3});
  refuse({"as many key heads"}, {.d_in = 3, .d_out = 4, .num_heads = 2, .kv_heads = 1});
  refuse({"divisible"}, {.d_in = 3, .d_out = 5, .num_heads = 2});
  refuse({"head_dim = d_out / num_heads", "found 3"}, {.d_in = 3, .d_out = 4, .num_heads = 2, .head_dim = 3});
  refuse({"2 to 8 tokens"}, {.d_in = 3, .d_out = 4}, 9);
  expect_error(Error::Kind::argument, {"before a delta rule"},
               [&] { Layer(Recurrent::linear, {.d_in = 3, .d_out = 4}, rng, 4); });
}

// An editor that watches some steps: the pass goes on with what it returns.
TEST(RecurrentModules, StepsCanBeEdited) {
  const auto layer = made(Recurrent::delta, kRecurrentConfig);
  const Tensor x = draw({6, 5}), z = layer->forward(x);
  Trace silent({.watches = [](const std::string& step) { return step == "weights"; },
                .edit = [](const std::string&, const Tensor& value) { return value; }});
  EXPECT_TRUE(identical(layer->forward(x, &silent), z));
  Trace zeros({.watches = [](const std::string& step) { return step == "weights"; },
               .edit = [](const std::string&, const Tensor& value) { return Tensor::zeros(value.shape()); }});
  const Tensor bias = layer->state_dict().at("out_proj.bias"), edited = layer->forward(x, &zeros);
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_TRUE(identical(edited.select(0, i).contiguous(), bias));
}

}  // namespace
}  // namespace attn::test
