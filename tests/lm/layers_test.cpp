// A model that is read a layer at a time records what a trace of the whole model does.
#include "attn/layers.hpp"

#include "attn/gpt.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

template <class Model>
void expect_same_steps(Model& model, const Tensor& ids, std::size_t layers) {
  Trace whole;
  model.forward(ids, &whole);
  std::size_t seen = 0, next = 0;
  read_layers(model, ids, {}, [&](std::size_t layer, const Trace& steps) {
    EXPECT_EQ(layer, next++);
    for (const auto& [name, value] : steps.steps()) {
      EXPECT_TRUE(identical(value, whole[name])) << name;
      ++seen;
    }
  });
  EXPECT_EQ(next, layers);
  EXPECT_EQ(seen, whole.steps().size());
  std::vector<std::size_t> wanted;
  read_layers(model, ids, {1}, [&](std::size_t layer, const Trace& steps) {
    wanted.push_back(layer);
    for (const auto& [name, value] : steps.steps()) {  // the layer before was computed by the kernels
      const std::vector<double> found = values(value), expected = values(whole[name]);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (found[i] == expected[i]) continue;  // -inf is -inf
        EXPECT_NEAR(found[i], expected[i], 1e-5) << name;
      }
    }
  });
  EXPECT_EQ(wanted, (std::vector<std::size_t>{1}));
}

LanguageModelConfig small(std::int64_t layers) {
  LanguageModelConfig c;
  c.vocab_size = 11, c.context_length = 16, c.width = 8, c.inner_width = 12, c.heads = 4, c.kv_heads = 2;
  c.ropes = {RopeConfig{.head_dim = 2}};
  c.layers.assign(static_cast<std::size_t>(layers), LayerConfig{.rope = 0});
  return c;
}

TEST(Layers, AreThoseOfTheWholeModel) {
  const std::vector<std::int64_t> text{1, 10, 3, 3, 7};
  const Tensor ids = Tensor::from(std::span(text), {5});
  Generator rng(4);
  LanguageModel model(small(3), rng, Initial::drawn);
  expect_same_steps(model, ids, 3);
}

TEST(Layers, RefusesWhatIsNotThere) {
  Generator rng(1);
  GPT gpt({.vocab_size = 20, .context_length = 8, .layers = 2, .heads = 2, .width = 8}, rng);
  const Tensor ids = Tensor::zeros({3}, DType::i64);
  const auto nothing = [](std::size_t, const Trace&) {};
  expect_error(Error::Kind::argument, {"layers from 0 to 1", "99"}, [&] { read_layers(gpt, ids, {0, 99}, nothing); });
  expect_error(Error::Kind::argument, {"a function for each layer"}, [&] { read_layers(gpt, ids, {}, {}); });
}

// Its rows may have been replaced by fewer.
TEST(Layers, AnEmbeddingHasARowForEachToken) {
  Generator rng(1);
  GPT gpt({.vocab_size = 20, .context_length = 8, .layers = 1, .heads = 2, .width = 8}, rng);
  gpt.embedding.value = Tensor::ones({3, 8});
  const Tensor ids = Tensor::full({2}, 19, DType::i64);
  expect_error(Error::Kind::argument, {"token ids in [0, 3)", "19"}, [&] { gpt.forward(ids); });
}

TEST(Layers, AModelWithoutInitialWeightsReadsZeros) {
  Generator rng(1);
  GPT gpt({.vocab_size = 20, .context_length = 8, .layers = 1, .heads = 2, .width = 8}, rng, Initial::none);
  const Tensor logits = gpt.forward(Tensor::full({2}, 19, DType::i64));
  EXPECT_EQ(values(logits), std::vector<double>(static_cast<std::size_t>(logits.numel()), 0.0));
}

}  // namespace
}  // namespace attn::test
