// A GPT whose layers are gated delta rules and softmax: its files, its decoder, its gradients.
#include "attn/generate.hpp"
#include "attn/gpt.hpp"
#include "attn/pretrained.hpp"
#include "core/folder.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

GPT hybrid() {
  Generator rng(5);
  GPT model({.vocab_size = 29,
             .context_length = 40,
             .layers = 4,
             .heads = 2,
             .width = 16,
             .mixers = {Mixer::gated_delta, Mixer::gated_delta, Mixer::gated_delta, Mixer::softmax}},
            rng);
  for (Parameter* p : model.parameters())
    if (p->value.rank() == 2) p->value = rng.uniform(p->value.shape(), -0.4, 0.4);
  return model;
}

Tensor some_ids(std::int64_t batch, std::int64_t tokens) { return Generator(9).randint(0, 29, {batch, tokens}); }

TEST(Hybrid, LayersHaveTheHeadsOfTheModel) {
  for (const std::int64_t heads : {1, 2, 4}) {
    Generator rng(5);
    GPT model({.vocab_size = 29, .layers = 1, .heads = heads, .width = 16, .mixers = {Mixer::gated_delta}}, rng);
    const auto all = model.parameters();
    const auto decay = std::ranges::find_if(all, [](const Parameter* p) { return p->name.ends_with("A_log"); });
    ASSERT_NE(decay, all.end());
    EXPECT_EQ((*decay)->value.shape(), Shape{heads});
  }
}

// Layers of states have as many as the family says, or as the model has; those of softmax have the model's.
TEST(Hybrid, EachKindOfLayerHasItsOwnHeads) {
  LanguageModelConfig config;
  config.heads = 4;
  config.layers = {LayerConfig{.mixer = Mixer::gated_delta}, LayerConfig{.mixer = Mixer::softmax}};
  const auto heads = [&] { return std::vector{config.heads_of(0), config.heads_of(1), config.most_heads()}; };
  EXPECT_EQ(heads(), (std::vector<std::int64_t>{4, 4, 4}));
  config.gated_delta.emplace().value_heads = 6;
  EXPECT_EQ(heads(), (std::vector<std::int64_t>{6, 4, 6}));
  config.gated_delta->value_heads = 2;
  EXPECT_EQ(heads(), (std::vector<std::int64_t>{2, 4, 4}));
}

TEST(Hybrid, ACacheGivesTheLogitsOfTheWholeText) {
  GPT model = hybrid();
  const Tensor ids = some_ids(2, 30), whole = model.forward(ids);
  Decoder decoder(model, 2, DType::f32);
  for (std::int64_t b = 0; b < 2; ++b) {
    const Tensor prompt = ids.select(0, b).slice(0, 0, 17).contiguous();
    const Tensor logits = decoder.read(b, {prompt.data<std::int64_t>(), 17});
    expect_close(logits, whole.select(0, b).select(0, 16), 1e-5, "prompt");
  }
  for (std::int64_t t = 17; t < 30; ++t) {
    const Tensor next = ids.slice(1, t, t + 1).contiguous();
    expect_close(decoder.read(next), whole.select(1, t).contiguous(), 1e-5, "a step");
  }
  expect_error(Error::Kind::argument, {"0 or the length now", "none can be taken away"},
               [&] { decoder.truncate(0, 5); });
  decoder.truncate(0, 30), decoder.truncate(0, 0);
  const Tensor again = ids.select(0, 0).slice(0, 0, 17).contiguous();
  expect_close(decoder.read(0, {again.data<std::int64_t>(), 17}), whole.select(0, 0).select(0, 16), 1e-5, "again");
}

TEST(Hybrid, GradientsEqualFiniteDifferences) {
  GPT model = hybrid();
  const Tensor ids = some_ids(2, 12), targets = some_ids(2, 12);
  model.loss(ids, targets);
  model.backward();
  std::mt19937 rng(3);
  for (Parameter* p : model.parameters()) {
    const Tensor direction = uniform(rng, p->value.shape(), DType::f32), start = p->value.clone();
    const auto at = [&](double step) {
      for (std::int64_t i = 0; i < start.numel(); ++i)
        p->value.data<float>()[i] = start.data<float>()[i] + static_cast<float>(step) * direction.data<float>()[i];
      return model.evaluate(ids, targets);
    };
    const double slope = (at(1e-3) - at(-1e-3)) / 2e-3, found = dot(p->grad, direction);
    at(0);
    EXPECT_NEAR(found, slope, 2e-3 + 0.02 * std::abs(slope)) << p->name;
  }
}

TEST(Hybrid, IsSavedAndLoaded) {
  GPT model = hybrid();
  const Folder folder;
  save_language_model(folder, model);
  LanguageModel loaded = load_language_model(folder);
  EXPECT_EQ(loaded.config().layers, static_cast<LanguageModel&>(model).config().layers);
  const Tensor ids = some_ids(1, 20);
  EXPECT_TRUE(identical(loaded.forward(ids), model.forward(ids)));
  const std::string json = config_json(static_cast<LanguageModel&>(model).config());
  EXPECT_THAT(json, testing::HasSubstr("attn_gpt")) << "which transformers does not take for its GPT-2";
  expect_error(Error::Kind::data, {"layer_types"}, [] {
    parse_language_model_config(R"({"model_type": "attn_gpt", "n_layer": 2, "layer_types": ["full_attention"]})");
  });
  expect_error(Error::Kind::data, {"layer_types", "gated_delta_net alone"}, [] {
    parse_language_model_config(R"({"model_type": "attn_gpt", "n_layer": 1, "layer_types": ["mamba"]})");
  });
}

}  // namespace
}  // namespace attn::test
