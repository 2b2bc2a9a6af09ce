// Models whose keys and values are made of latents: their decoder, their config, what they refuse.
#include "attn/experiment.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

// A piece of 18 tokens or more makes the keys and values of its text; fewer meet the latents.
TEST(LatentModels, PiecesOfAnyLengthHaveTheLogitsOfTheWhole) {
  LanguageModel model = load_language_model(kData / "minicpm3");
  expect_pieces(model, 2e-5, [](Decoder& decoder, std::span<const std::int64_t> text, const Tensor& whole) {
    decoder.truncate(1, 30);
    expect_of_largest(decoder.read(1, text.subspan(30, 3)), whole.select(0, 32), 2e-5, "truncated");
  });
}

TEST(LatentModels, ACacheKeepsLatentsAlone) {
  LanguageModel model = load_language_model(kData / "minicpm3");
  Decoder decoder(model);
  decoder.read(0, text_of(64));
  EXPECT_EQ(decoder.bytes(), std::size_t{2} * 64 * (8 + 4) * sizeof(float)) << "layers, tokens, latent + rotary";
}

TEST(LatentModels, HeadsAddUpToTheLogit) {
  LanguageModel model = load_language_model(kData / "minicpm3");
  const Attribution found = attribution(model, integers(text_of(12)), 5, 9);
  EXPECT_NEAR(found.sum, found.logit, 1e-4);
  const Tensor ids = integers(text_of(12));
  const Edits nothing{scale({1, 0}, 1)};
  expect_of_largest(model.forward(ids, {.edits = nothing}).select(0, 11), model.forward(ids).select(0, 11), 2e-5,
                    "edited");
}

TEST(LatentModels, NullsAreWhatChangesNothing) {
  const auto parsed = [](const std::string& from, const std::string& to) { return test::parsed("minicpm3", from, to); };
  EXPECT_EQ(parsed("\"scale_depth\": 0.9", "\"scale_depth\": null").residual_scale, 1);
  EXPECT_EQ(parsed("\"dim_model_base\": 12", "\"dim_model_base\": null").logits_scale, 1);
  EXPECT_EQ(parsed("\"q_lora_rank\": 10", "\"q_lora_rank\": null").latent->query, 0);
  EXPECT_EQ(parsed("\"v_head_dim\": 5,", "").latent->value, 4);
  EXPECT_NEAR(parsed("\"scale_depth\": 0.9,", "").residual_scale, 1.4 / std::sqrt(2.0), 1e-15);
}

TEST(LatentModels, MistakesAreNamed) {
  const auto refuse = [](const std::vector<std::string>& parts, const std::string& from, const std::string& to) {
    expect_error(Kind::data, parts, [&] { parsed("minicpm3", from, to); });
  };
  refuse({"keys that attn reads", "num_experts: 8"}, "{", "{\"num_experts\": 8,");
  refuse({"num_key_value_heads", "num_attention_heads = 4"}, "\"num_key_value_heads\": 4",
         "\"num_key_value_heads\": 2");
  refuse({"qk_head_dim", "found 11"}, "\"qk_head_dim\": 10", "\"qk_head_dim\": 11");
  refuse({"head_dim", "found 8"}, "\"head_dim\": 4", "\"head_dim\": 8");
  LanguageModel model = load_language_model(kData / "minicpm3");
  const MakeCache cut = [](const KVCacheConfig& c) { return std::make_unique<KVCache>(c); };
  expect_error(Kind::argument, {"a cache that is not cut", "latents"}, [&] { Decoder(model, 1, DType::f32, cut); });
  LanguageModelConfig config = model.config();
  config.layers[0].window = 3;
  expect_error(Kind::argument, {"no window"}, [&] { LanguageModel other(config); });
}

}  // namespace
}  // namespace attn::test
