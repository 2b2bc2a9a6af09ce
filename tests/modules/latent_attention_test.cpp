// LatentAttention: its steps by the definition in double, gradients by finite differences, and a cache of latents
// beside the whole text.
#include "attn/latent_attention.hpp"

#include "modules/helpers.hpp"
#include "ops/stored.hpp"

namespace attn::test {
namespace {

constexpr LatentSizes kSizes{.query = 7, .latent = 8, .plain = 3, .rotary = 4, .value = 5};
constexpr LatentSizes kNoQueryLatent{.latent = 8, .plain = 3, .rotary = 4, .value = 5};
const ModuleConfig kLatentConfig{.d_in = 6, .d_out = 10, .num_heads = 3, .qkv_bias = true};

std::unique_ptr<LatentAttention> latent(const LatentSizes& sizes, const ModuleConfig& config = kLatentConfig) {
  Generator rng(5);
  auto layer = std::make_unique<LatentAttention>(config, sizes, rng);
  for (Parameter* p : layer->parameters())
    p->value = draw(p->value.shape(), 7 + static_cast<std::uint64_t>(p->value.numel()));
  return layer;
}

RotaryTable turns(std::int64_t tokens, std::int64_t first = 0, RotaryLayout layout = RotaryLayout::halves) {
  RotaryFrequencies frequencies = rotary_frequencies({.head_dim = kSizes.rotary, .theta = 100});
  frequencies.layout = layout;
  return rotary_table(frequencies, tokens, first);
}

using Vector = std::vector<double>;

Vector times(const Tensor& weight, const Vector& x, std::int64_t first, std::int64_t count, const Tensor& bias = {}) {
  Vector y;
  for (std::int64_t i = first; i < first + count; ++i) {
    double sum = bias.defined() ? bias.at({i}) : 0;
    for (std::size_t j = 0; j < x.size(); ++j) sum += weight.at({i, static_cast<std::int64_t>(j)}) * x[j];
    y.push_back(sum);
  }
  return y;
}

Vector normed(Vector x, const Tensor& weight) {
  double squares = 1e-6;
  for (const double v : x) squares += v * v / static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= weight.at({static_cast<std::int64_t>(i)}) / std::sqrt(squares);
  return x;
}

// Numbers i and i + 2 of four turn by position · 100^(-i / 2).
Vector turned(const Vector& x, std::int64_t position) {
  Vector y = x;
  for (std::size_t i = 0; i < 2; ++i) {
    const double angle = static_cast<double>(position) * std::pow(100, -static_cast<double>(i) / 2);
    y[i] = x[i] * std::cos(angle) - x[i + 2] * std::sin(angle);
    y[i + 2] = x[i + 2] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return y;
}

// Each step follows the paper's equations, token by token, from the parameters alone.
TEST(LatentAttention, StepsAreTheDefinition) {
  for (const LatentSizes& sizes : {kSizes, kNoQueryLatent}) {
    const auto layer = latent(sizes);
    const StateDict w = layer->state_dict();
    const Tensor x = draw({5, 6});
    Trace t;
    const Tensor z = layer->forward(x, turns(5), &t);
    std::vector<Vector> cs, rs, merged(5);
    for (std::int64_t i = 0; i < 5; ++i) {
      const Vector row = values(x.select(0, i)),
                   both = times(w.at("kv_a_proj_with_mqa.weight"), row, 0, 12, w.at("kv_a_proj_with_mqa.bias"));
      cs.push_back(normed({both.begin(), both.begin() + 8}, w.at("kv_a_layernorm.weight")));
      rs.push_back(turned({both.begin() + 8, both.end()}, i));
      expect_close(t["compressed"].select(0, i), tensor({both.begin(), both.begin() + 8}, {8}), 1e-5, "compressed");
      expect_close(t["latents"].select(0, i), tensor(cs.back(), {8}), 1e-5, "latents");
      const bool low = sizes.query > 0;
      const Vector from =
          low ? normed(times(w.at("q_a_proj.weight"), row, 0, 7, w.at("q_a_proj.bias")), w.at("q_a_layernorm.weight"))
              : row;
      ASSERT_EQ(t.contains("query latents"), low);
      if (low) expect_close(t["query latents"].select(0, i), tensor(from, {7}), 1e-5, "query latents");
      for (std::int64_t h = 0; h < 3; ++h) {
        const Vector all = times(w.at(low ? "q_b_proj.weight" : "q_proj.weight"), from, 7 * h, 7);
        const Vector q_r = turned({all.begin() + 3, all.end()}, i);
        Vector scores, context(5);
        double sum = 0;
        for (std::size_t j = 0; j <= static_cast<std::size_t>(i); ++j) {
          const Vector k = times(w.at("kv_b_proj.weight"), cs[j], 8 * h, 3);
          double score = 0;
          for (std::size_t d = 0; d < 3; ++d) score += all[d] * k[d];
          for (std::size_t d = 0; d < 4; ++d) score += q_r[d] * rs[j][d];
          scores.push_back(std::exp(score / std::sqrt(7.0)));
          sum += scores.back();
        }
        for (std::size_t j = 0; j < scores.size(); ++j) {
          const Vector v = times(w.at("kv_b_proj.weight"), cs[j], 8 * h + 3, 5);
          for (std::size_t d = 0; d < 5; ++d) context[d] += scores[j] / sum * v[d];
        }
        expect_close(t["context"].select(0, h).select(0, i), tensor(context, {5}), 1e-5, "context");
        auto& all_heads = merged[static_cast<std::size_t>(i)];
        all_heads.insert(all_heads.end(), context.begin(), context.end());
      }
      const Vector out = times(w.at("o_proj.weight"), merged[static_cast<std::size_t>(i)], 0, 10, w.at("o_proj.bias"));
      expect_close(z.select(0, i), tensor(out, {10}), 2e-5, "output");
    }
    EXPECT_EQ(t["rotated keys"].shape(), (Shape{3, 5, 7}));
    EXPECT_EQ(t["values"].shape(), (Shape{3, 5, 5}));
    EXPECT_TRUE(t.contains("queries") && t.contains("keys") && t.contains("weights") && t.contains("merged"));
    expect_close(layer->forward(x, turns(5)), z, 1e-5, "without a trace");
  }
}

TEST(LatentAttention, GradientsEqualFiniteDifferences) {
  for (const LatentSizes& sizes : {kSizes, kNoQueryLatent}) {
    for (const RotaryTable& table : {turns(4), turns(4, 3, RotaryLayout::interleaved), RotaryTable{}}) {
      const auto layer = latent(sizes);
      const Tensor x = draw({2, 4, 6}), dz = draw({2, 4, 10}, 3);
      layer->forward(x, table);
      const Tensor dx = layer->backward(dz).x;
      const auto loss = [&] { return dot(layer->forward(x, table), dz); };
      expect_gradient(dx, x, loss, 1e-3, 5e-3, "dx");
      for (Parameter* p : layer->parameters()) expect_gradient(p->grad, p->value, loss, 1e-3, 5e-3, p->name);
    }
  }
}

TEST(LatentAttention, GradientsGoThroughDropout) {
  for (const auto flavour : {DropoutFlavour::mkl, DropoutFlavour::native, DropoutFlavour::philox}) {
    ModuleConfig config = kLatentConfig;
    config.dropout = 0.4;
    Generator rng(5, flavour);
    LatentAttention layer(config, kSizes, rng);
    layer.train();
    const Tensor x = draw({2, 4, 6}), dz = draw({2, 4, 10}, 3);
    const auto forward = [&] {
      rng.manual_seed(5);
      return layer.forward(x, turns(4));
    };
    const Tensor z = forward(), dx = layer.backward(dz).x;
    expect_gradient(
        dx, x, [&] { return dot(forward(), dz); }, 5e-3, 5e-3, "dx");
    layer.eval();
    EXPECT_FALSE(identical(layer.forward(x, turns(4)), z));
  }
}

// Pieces that are expanded, and tokens that are absorbed: 20 tokens at once take more products than their heads' keys.
TEST(LatentAttention, ACacheOfLatentsGivesTheWholeText) {
  for (const LatentSizes& sizes : {kSizes, kNoQueryLatent}) {
    const auto layer = latent(sizes);
    const Tensor x = draw({2, 40, 6}), whole = layer->forward(x, turns(40));
    for (const auto& [dtype, limit] : {std::pair{DType::f32, 1e-5}, {DType::bf16, 0.05}, {DType::i8, 0.05}}) {
      KVCache cache(layer->cache_config(2, dtype));
      for (std::int64_t b = 0; b < 2; ++b) {
        for (const auto& [first, last] : {std::pair{0, 20}, {20, 23}, {23, 37}}) {
          const Tensor z =
              layer->forward(x.slice(0, b, b + 1).slice(1, first, last), turns(last - first, first), cache, b);
          expect_close(z, whole.slice(0, b, b + 1).slice(1, first, last), limit, name(dtype).data());
        }
      }
      for (std::int64_t i = 37; i < 40; ++i) {
        const Tensor z = layer->forward(x.slice(1, i, i + 1), turns(1, i), cache);
        expect_close(z, whole.slice(1, i, i + 1), limit, "one token of each text");
      }
      EXPECT_EQ(cache.keys(1).shape(), (Shape{1, 40, 12})) << "latent + rotary, whatever the heads";
    }
  }
}

TEST(LatentAttention, MatricesAreKeptInFewerBits) {
  const Tensor x = draw({1, 9, 6});
  for (const auto& [dtype, limit] : {std::pair{DType::bf16, 0.1}, {DType::i8, 0.1}}) {
    const auto layer = latent(kSizes);
    const Tensor wide = layer->forward(x, turns(9));
    store_matrices(layer->parameters(), dtype);
    const Tensor narrow = layer->forward(x, turns(9));
    expect_close(narrow, wide, limit, name(dtype).data());
    KVCache cache(layer->cache_config(1));
    expect_close(layer->forward(x, turns(9), cache), narrow, 1e-5, "absorbed, of the same matrices");
  }
}

TEST(LatentAttention, PackedTextsStayApart) {
  const auto layer = latent(kSizes);
  const Tensor x = draw({1, 9, 6});
  const Tensor first = layer->forward(x.slice(1, 0, 4)), rest = layer->forward(x.slice(1, 4, 9));
  layer->set_texts(tensor({0, 4, 9}, {3}, DType::i64));
  const Tensor both = layer->forward(x);
  expect_close(both.slice(1, 0, 4), first, 1e-5, "the first");
  expect_close(both.slice(1, 4, 9), rest, 1e-5, "the second");
}

TEST(LatentAttention, TakesNoTokensAtAll) {
  const auto layer = latent(kSizes);
  for (const Shape& shape : {Shape{2, 0, 6}, Shape{0, 3, 6}, Shape{0, 6}}) {
    const Tensor z = layer->forward(Tensor::zeros(shape), turns(shape[shape.size() - 2]));
    EXPECT_EQ(z.shape().back(), 10);
    EXPECT_EQ(layer->backward(z).x.shape(), shape);
  }
}

// An editor that takes the latents of a word away: its keys' plain part and its values are 0 in every head.
TEST(LatentAttention, LatentsCanBeEdited) {
  const auto layer = latent(kSizes);
  const Tensor x = draw({6, 6});
  Tensor seen;
  Trace trace({.watches = [](const std::string& step) { return step == "latents" || step == "values"; },
               .edit =
                   [&](const std::string& step, const Tensor& value) {
                     if (step == "latents") return Tensor::zeros(value.shape());
                     return seen = value;
                   }});
  const Tensor z = layer->forward(x, turns(6), &trace), bias = layer->state_dict().at("o_proj.bias");
  EXPECT_THAT(values(seen), testing::Each(0));
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_TRUE(identical(z.select(0, i).contiguous(), bias));
}

// In the list of modules, sizes that are left out follow from d_out, and a rope makes a part that turns.
TEST(LatentAttention, AsAModuleOfTheList) {
  const ModuleKind& kind = module_kind("latent");
  const RotaryFrequencies four = rotary_frequencies({.head_dim = 4, .theta = 100});
  ModuleConfig config{.d_in = 6, .d_out = 12, .num_heads = 3, .qkv_bias = true, .rope = four};
  Generator rng(3), same(3);
  const auto module = kind.make(config, rng);
  const StateDict drawn = module->state_dict();
  EXPECT_EQ(drawn.at("q_proj.weight").shape(), (Shape{3 * (4 + 4), 6}));
  EXPECT_EQ(drawn.at("kv_a_proj_with_mqa.weight").shape(), (Shape{6 + 4, 6}));
  EXPECT_EQ(drawn.at("kv_b_proj.weight").shape(), (Shape{3 * (4 + 4), 6}));
  EXPECT_EQ(drawn.at("o_proj.bias").shape(), (Shape{12}));
  LatentAttention layer(config, {.latent = 6, .plain = 4, .rotary = 4, .value = 4}, same);
  const Tensor x = draw({2, 5, 6});
  EXPECT_TRUE(identical(module->forward(x), layer.forward(x, rotary_table(four, 5))));
  layer.forward(x, RotaryTable{});  // which turns nothing, whatever the config's rope
  EXPECT_FALSE(identical(module->forward(x), layer.forward(x, RotaryTable{})));

  config.rope = {}, config.qkv_bias = false, config.latents = {.query = 5, .latent = 3, .value = 2};
  const auto other = kind.make(config, rng);
  EXPECT_EQ(other->state_dict().at("q_b_proj.weight").shape(), (Shape{3 * 4, 5}));
  EXPECT_EQ(other->state_dict().at("kv_a_proj_with_mqa.weight").shape(), (Shape{3, 6}));
  EXPECT_EQ(other->state_dict().at("kv_b_proj.weight").shape(), (Shape{3 * (4 + 2), 3}));
  EXPECT_FALSE(other->state_dict().contains("o_proj.bias"));
  config.latents = {};
  EXPECT_EQ(kind.make({.d_in = 6, .d_out = 2}, rng)->state_dict().at("kv_a_layernorm.weight").shape(), (Shape{2}));
  config.num_heads = 5;
  expect_error(Error::Kind::argument, {"d_out divisible by num_heads", "12", "5"}, [&] { kind.make(config, rng); });
}

// The module has no rotary part, or one that turns by the config's rope.
TEST(LatentAttention, GradientsAsAModuleOfTheList) {
  for (const bool turns : {false, true}) {
    Generator rng(4);
    ModuleConfig config{.d_in = 3, .d_out = 4, .num_heads = 2};
    if (turns) config.rope = rotary_frequencies({.head_dim = 2});
    const auto module = module_kind("latent").make(config, rng);
    const Tensor x = draw({2, 5, 3}), g = draw({2, 5, 4}, 77);
    module->forward(x);
    const Tensor dx = backward(*module, g);
    const auto loss = [&] { return dot(module->forward(x), g); };
    expect_gradient(dx, x, loss, 1e-3, 5e-3, "dx");
    for (Parameter* p : module->parameters()) expect_gradient(p->grad, p->value, loss, 1e-3, 5e-3, p->name);
  }
}

// A cache of latents alone, without a rotary part.
TEST(LatentAttention, ACacheWithoutARotaryPart) {
  Generator rng(4);
  LatentAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2}, {.latent = 5, .plain = 4, .value = 4}, rng);
  const Tensor x = draw({2, 9, 6}), whole = layer.forward(x);
  KVCache cache(layer.cache_config(2));
  const Tensor first = layer.forward(x.slice(1, 0, 4), {}, cache), rest = layer.forward(x.slice(1, 4, 9), {}, cache);
  expect_close(first, whole.slice(1, 0, 4), 1e-5, "the first");
  expect_close(rest, whole.slice(1, 4, 9), 1e-5, "the rest");
}

TEST(LatentAttention, MistakesAreNamed) {
  using Kind = Error::Kind;
  Generator rng(1);
  const auto refuse = [&](const std::vector<std::string>& parts, ModuleConfig config,
                          const LatentSizes& sizes = kSizes) {
    config.d_in = 6, config.d_out = 10;
    expect_error(Kind::argument, parts, [&] { LatentAttention(config, sizes, rng); });
  };
  refuse({"latent of at least 1"}, {}, {});
  refuse({"value of at least 1", "-2"}, {}, {.latent = 8, .plain = 3, .rotary = 4, .value = -2});
  refuse({"no window"}, {.window = 3});
  refuse({"no window"}, {.out_proj = false});
  refuse({"no window"}, {.output_gate = true});
  refuse({"no layer_order"}, {.layer_order = LayerOrder::kqv});
  refuse({"a rope of rotary numbers", "6 for 4"}, {.rope = rotary_frequencies({.head_dim = 6})});
  refuse({"latents as the sizes, or none"}, {.latents = {.latent = 3}});
  refuse({"as many key heads as heads"}, {.num_heads = 4, .kv_heads = 2});
  refuse({"head_dim = plain + rotary", "5"}, {.head_dim = 5});
  refuse({"dropout in [0, 1]"}, {.dropout = 2});
  ModuleConfig config = kLatentConfig;
  config.context_length = 6;
  const auto layer = latent(kSizes, config);
  expect_error(Kind::argument, {"forward() before backward()"}, [&] { layer->backward(draw({3, 10})); });
  expect_error(Kind::shape, {"context_length = 6", "7"}, [&] { layer->forward(draw({7, 6})); });
  expect_error(Kind::shape, {"(tokens, 6)"}, [&] { layer->forward(draw({3, 5})); });
  layer->forward(draw({3, 6}));
  expect_error(Kind::shape, {"(1, 3, 10)"}, [&] { layer->backward(draw({4, 10})); });
  KVCache apart({.kv_heads = 1, .head_dim = 12, .value_dim = 8}), own(layer->cache_config(1));
  expect_error(Kind::argument, {"cache_config()"}, [&] { layer->forward(draw({1, 3, 6}), {}, apart); });
  expect_error(Kind::shape, {"x (1, tokens, d_in)"}, [&] { layer->forward(draw({2, 3, 6}), {}, own); });
  layer->forward(draw({1, 5, 6}), {}, own);
  expect_error(Kind::shape, {"context_length = 6", "5 in the cache and 2"}, [&] {
    layer->forward(draw({1, 2, 6}), {}, own);
  });
  EXPECT_EQ(own.length(0), 5);
}

}  // namespace
}  // namespace attn::test
