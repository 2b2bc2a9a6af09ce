// Models whose keys and values are made of latents: their decoder, their config, what they refuse.
#include <fstream>
#include <iterator>

#include "attn/experiment.hpp"
#include "attn/generate.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;
using Ids = std::vector<std::int64_t>;

Ids text_of(std::int64_t tokens) {
  Ids ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids.push_back((7 * i * i + 3 * i) % 61);
  return ids;
}

Tensor as_tensor(const Ids& ids) { return Tensor::from(std::span<const std::int64_t>(ids), {std::ssize(ids)}); }

std::string config_with(const std::string& from, const std::string& to) {
  std::ifstream file(kData / "minicpm3" / "config.json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("no " + from);
  return text.replace(at, from.size(), to);
}

// A piece of 18 tokens or more makes the keys and values of its text; fewer meet the latents.
TEST(LatentModels, PiecesOfAnyLengthHaveTheLogitsOfTheWhole) {
  LanguageModel model = load_language_model(kData / "minicpm3");
  const Ids text = text_of(60);
  const Tensor whole = model.forward(as_tensor(text));
  for (const std::vector<std::size_t>& ends : {std::vector<std::size_t>{60}, {1, 2, 3, 40, 41, 60}, {17, 34, 60}}) {
    Decoder decoder(model, 2);
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      const Tensor logits = decoder.read(1, std::span(text).subspan(first, end - first));
      expect_of_largest(logits, whole.select(0, static_cast<std::int64_t>(end) - 1), 2e-5, std::to_string(end));
      first = end;
    }
    decoder.truncate(1, 30);
    expect_of_largest(decoder.read(1, std::span(text).subspan(30, 3)), whole.select(0, 32), 2e-5, "truncated");
  }
}

TEST(LatentModels, ACacheKeepsLatentsAlone) {
  LanguageModel model = load_language_model(kData / "minicpm3");
  Decoder decoder(model);
  decoder.read(0, text_of(64));
  EXPECT_EQ(decoder.bytes(), std::size_t{2} * 64 * (8 + 4) * sizeof(float)) << "layers, tokens, latent + rotary";
}

TEST(LatentModels, HeadsAddUpToTheLogit) {
  LanguageModel model = load_language_model(kData / "minicpm3");
  const Attribution found = attribution(model, as_tensor(text_of(12)), 5, 9);
  EXPECT_NEAR(found.sum, found.logit, 1e-4);
  const Tensor ids = as_tensor(text_of(12));
  const Edits nothing{scale({1, 0}, 1)};
  expect_of_largest(edited_forward(model, ids, nothing).select(0, 11), model.forward(ids).select(0, 11), 2e-5,
                    "edited");
}

TEST(LatentModels, NullsAreWhatChangesNothing) {
  const auto parsed = [](const std::string& from, const std::string& to) {
    return parse_language_model_config(config_with(from, to), "x");
  };
  EXPECT_EQ(parsed("\"scale_depth\": 0.9", "\"scale_depth\": null").residual_scale, 1);
  EXPECT_EQ(parsed("\"dim_model_base\": 12", "\"dim_model_base\": null").logits_scale, 1);
  EXPECT_EQ(parsed("\"q_lora_rank\": 10", "\"q_lora_rank\": null").latent->query, 0);
  EXPECT_EQ(parsed("\"v_head_dim\": 5,", "").latent->value, 4);
  EXPECT_NEAR(parsed("\"scale_depth\": 0.9,", "").residual_scale, 1.4 / std::sqrt(2.0), 1e-15);
}

TEST(LatentModels, MistakesAreNamed) {
  const auto refuse = [](const std::vector<std::string>& parts, const std::string& from, const std::string& to) {
    expect_error(Kind::data, parts, [&] { parse_language_model_config(config_with(from, to), "x"); });
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
