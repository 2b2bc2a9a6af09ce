// Families of gated delta rules and softmax attention: their decoder, their files, their config, what they refuse.
#include <nlohmann/json.hpp>

#include "core/threads.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

class HybridFamilies : public testing::TestWithParam<std::string> {};

TEST_P(HybridFamilies, PiecesOfAnyLengthHaveTheLogitsOfTheWhole) {
  LanguageModel model = load_language_model(kData / GetParam());
  expect_pieces(model, 1e-5, [](Decoder& decoder, auto, auto) {
    expect_error(Kind::argument, {"none can be taken away"}, [&] { decoder.truncate(1, 30); });
  });
}

TEST_P(HybridFamilies, BitsDependOnNoThreadsAndNoNeighbours) {
  LanguageModel model = load_language_model(kData / GetParam());
  const auto written = [&](std::int64_t batch, int threads) {
    const Threads own(threads);
    Decoder decoder(model, batch);
    std::vector<Tensor> logits;
    for (std::int64_t b = 1; b < batch; ++b) decoder.read(b, text_of(9 * b, b));
    logits.push_back(decoder.read(0, text_of(13)));
    for (std::int64_t step = 0; step < 5; ++step)
      logits.push_back(decoder.read(Ids(static_cast<std::size_t>(batch), step)).select(0, 0));
    return stack(logits);
  };
  const Tensor alone = written(1, 1);
  EXPECT_TRUE(identical(alone, written(1, 3))) << "threads";
  EXPECT_TRUE(identical(alone, written(3, 2))) << "neighbours";
}

TEST_P(HybridFamilies, MistakesAreNamed) {
  const std::string family = GetParam();
  const auto refuse = [&](const std::vector<std::string>& parts, const std::string& from, const std::string& to) {
    expect_error(Kind::data, parts, [&] { parsed(family, from, to); });
  };
  refuse({"keys that attn reads", "num_experts: 8"}, "{", "{\"num_experts\": 8,");
  refuse({"keys that attn reads", "vision_config"}, "{", "{\"vision_config\": {\"depth\": 2},");
  refuse({"layer_types", "found \"mamba\""}, "\"linear_attention\"", "\"mamba\"");
  refuse({"layer_types", "a list of 3"}, "\"linear_attention\",", "");
  refuse({"hidden_act", "silu"}, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
  refuse({"linear_num_value_heads", "a multiple of linear_num_key_heads = 5"}, "\"linear_num_key_heads\": 2",
         "\"linear_num_key_heads\": 5");
  refuse({"linear_conv_kernel_dim", "2 to 8"}, "\"linear_conv_kernel_dim\":", "\"linear_conv_kernel_dim\": 9, \"x\":");
  refuse({"linear_key_head_dim", "2^31"}, "\"linear_key_head_dim\":", "\"linear_key_head_dim\": 4000000000, \"x\":");
  refuse({"linear_value_head_dim"}, "\"linear_value_head_dim\":", "\"linear_value_head_dim\": 0, \"x\":");
  LanguageModel model = load_language_model(kData / family);
  const MakeCache cut = [](const KVCacheConfig& c) { return std::make_unique<KVCache>(c); };
  expect_error(Kind::argument, {"a cache that is not cut", "recurrent"}, [&] { Decoder(model, 1, DType::f32, cut); });
  LanguageModelConfig config = model.config();
  config.gated_delta->key_heads = 5;
  expect_error(Kind::argument, {"value_heads that are a multiple of key_heads"}, [&] { LanguageModel other(config); });
}

INSTANTIATE_TEST_SUITE_P(All, HybridFamilies, testing::Values("olmo_hybrid", "qwen3_5_text"),
                         [](const auto& family) { return family.param; });

TEST(HybridFamilies, OlmosDefaultsAreTransformers) {
  const std::string sizes =
      R"({"model_type": "olmo_hybrid", "vocab_size": 9, "hidden_size": 40, "intermediate_size": 8,
          "num_attention_heads": 4, "max_position_embeddings": 16, )";
  const auto of = [&](const std::string& more) { return parse_language_model_config(sizes + more + "}", "x"); };
  LanguageModelConfig c = of("\"num_hidden_layers\": 8");
  const GatedDeltaConfig wanted{4, 4, 7, 14, 4, true, 1e-5};
  EXPECT_EQ(c.gated_delta, wanted);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(c.layers[i].mixer == Mixer::softmax, i % 4 == 3) << i;
  EXPECT_EQ(c.ropes.size(), 1U);
  c = of(R"("num_hidden_layers": 2, "rope_parameters": {"rope_theta": null, "rope_type": "default"})");
  EXPECT_EQ(c.layers[1].mixer, Mixer::softmax) << "one layer at least";
  EXPECT_TRUE(c.ropes.empty()) << "a base of null turns nothing";
  EXPECT_NO_THROW(LanguageModel{c});
  EXPECT_FALSE(of(R"("num_hidden_layers": 4, "linear_allow_neg_eigval": false)").gated_delta->doubled_beta);
  expect_error(Kind::data, {"layer_types", "full_attention in one layer"},
               [&] { of(R"("num_hidden_layers": 1, "layer_types": ["linear_attention"])"); });
}

TEST(HybridFamilies, QwensDefaultsAreTransformers) {
  const std::string sizes =
      R"({"model_type": "qwen3_5_text", "vocab_size": 9, "hidden_size": 40, "intermediate_size": 8,
          "num_attention_heads": 4, "max_position_embeddings": 16, "num_hidden_layers": 8)";
  const auto of = [&](const std::string& more) { return parse_language_model_config(sizes + more + "}", "x"); };
  LanguageModelConfig c = of("");
  const GatedDeltaConfig wanted{16, 32, 128, 128, 4, false, 1e-6};
  EXPECT_EQ(c.gated_delta, wanted);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.ropes[0].partial_rotary_factor, 0.25);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(c.layers[i].mixer == Mixer::softmax, i % 4 == 3) << i;
  c = of(R"(, "full_attention_interval": 2, "partial_rotary_factor": 0.5)");
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(c.layers[i].mixer == Mixer::softmax, i % 2 == 1) << i;
  EXPECT_EQ(c.ropes[0].partial_rotary_factor, 0.5);
  expect_error(Kind::data, {"attn_output_gate"}, [&] { of(R"(, "attn_output_gate": false)"); });
  expect_error(Kind::data, {"layer_types", "linear_attention in one layer"},
               [&] { of(R"(, "full_attention_interval": 1)"); });
}

// A folder of the model that reads pictures, too.
TEST(HybridFamilies, QwensTextPartIsReadFromTheWhole) {
  using Json = nlohmann::json;
  const Json part = Json::parse(read(kData / "qwen3_5_text" / "config.json"));
  const Json whole{{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                   {"model_type", "qwen3_5"},
                   {"text_config", part},
                   {"vision_config", {{"depth", 27}, {"model_type", "qwen3_5_vision"}}},
                   {"image_token_id", 7},
                   {"tie_word_embeddings", false}};
  const LanguageModelConfig c = parse_language_model_config(whole.dump(), "x");
  EXPECT_EQ(c.family, "qwen3_5_text");
  EXPECT_EQ(Json::parse(c.json).at("model_type"), "qwen3_5_text");
  EXPECT_FALSE(Json::parse(c.json).contains("vision_config"));
  const auto refused = [&](const std::vector<std::string>& parts, const std::function<void(Json&)>& change) {
    Json other = whole;
    change(other);
    expect_error(Kind::data, parts, [&] { parse_language_model_config(other.dump(), "x"); });
  };
  refused({"text_config", "an object"}, [](Json& j) { j.erase("text_config"); });
  refused({"text_config", "an object"}, [](Json& j) { j["text_config"] = 3; });
  refused({"model_type", "qwen3_5_moe_text"}, [](Json& j) { j["text_config"]["model_type"] = "qwen3_5_moe_text"; });
  refused({"tie_word_embeddings", "false"}, [](Json& j) { j["tie_word_embeddings"] = true; });
  refused({"audio_config"}, [](Json& j) { j["audio_config"] = {{"depth", 1}}; });
  refused({"experts"}, [](Json& j) { j["text_config"]["experts"] = 8; });
  Json untold = whole;  // what text_config leaves to the whole, and the kind that its name has
  untold["text_config"].erase("tie_word_embeddings"), untold["text_config"].erase("model_type");
  untold["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse_language_model_config(untold.dump(), "x").tied);

  io::NamedTensors file = io::load(kData / "qwen3_5_text" / "model.safetensors");
  const Folder folder;
  write(folder / "config.json", whole.dump());
  for (auto& [name, tensor] : file.tensors)
    if (name.starts_with("model.")) name.replace(0, 6, "model.language_model.");
  file.tensors.emplace_back("model.visual.blocks.0.norm1.weight", Tensor::ones({4}));
  file.tensors.emplace_back("mtp.fc.weight", Tensor::ones({4, 2}));
  io::save_safetensors(folder / "model.safetensors", file);
  LanguageModel found = load_language_model(folder), plain = load_language_model(kData / "qwen3_5_text");
  const Tensor ids = integers(text_of(20));
  EXPECT_TRUE(identical(found.forward(ids), plain.forward(ids)));
  file.tensors.emplace_back("model.audio.weight", Tensor::ones({4}));
  io::save_safetensors(folder / "model.safetensors", file);
  expect_error(Kind::data, {"only tensors of a qwen3_5_text", "model.audio"}, [&] { load_language_model(folder); });
}

// transformers cuts the convolution's channels into thirds, and the released files where keys and values begin. Both
// names of norms are read.
TEST(HybridFamilies, OlmosFilesMayBeCutAndCalledOtherwise) {
  io::NamedTensors file = io::load(kData / "olmo_hybrid" / "model.safetensors");
  const Folder folder;
  fs::copy_file(kData / "olmo_hybrid" / "config.json", folder / "config.json");
  const auto with = [&](const std::string& part) -> Tensor& {
    const auto is = [&](const auto& t) { return t.first == "model.layers.0.linear_attn." + part + "_conv1d.weight"; };
    return std::ranges::find_if(file.tensors, is)->second;
  };
  EXPECT_EQ(with("q").size(0), 15) << "of 2 · 6 queries, as many keys and 4 · 5 values";
  Tensor all = Tensor::empty({44, 1, 4});
  std::int64_t row = 0;
  for (const char* part : {"q", "k", "v"}) {
    all.slice(0, row, row + with(part).size(0)).copy_from(with(part));
    row += with(part).size(0);
  }
  with("q") = all.slice(0, 0, 12).contiguous(), with("k") = all.slice(0, 12, 24).contiguous();
  with("v") = all.slice(0, 24, 44).contiguous();
  for (auto& [name, tensor] : file.tensors) {
    const std::string old = "attention_layer_norm";
    if (const std::size_t at = name.find(old); at != std::string::npos) name.replace(at, old.size(), "input_layernorm");
  }
  io::save_safetensors(folder / "model.safetensors", file);
  LanguageModel cut = load_language_model(folder), whole = load_language_model(kData / "olmo_hybrid");
  const Tensor ids = integers(text_of(20));
  EXPECT_TRUE(identical(cut.forward(ids), whole.forward(ids)));
  with("q") = all.slice(0, 0, 11).contiguous();
  io::save_safetensors(folder / "model.safetensors", file);
  expect_error(Kind::data, {"conv1d.weight of shape (44, 1, 4)", "(43, 1, 4)"}, [&] { load_language_model(folder); });
}

TEST(HybridFamilies, QwensFilesMayHaveTheNamesOfTheWhole) {
  io::NamedTensors file = io::load(kData / "qwen3_5_text" / "model.safetensors");
  const Folder folder;
  fs::copy_file(kData / "qwen3_5_text" / "config.json", folder / "config.json");
  for (auto& [name, tensor] : file.tensors)
    if (name.starts_with("model.")) name.replace(0, 6, "model.language_model.");
  io::save_safetensors(folder / "model.safetensors", file);
  LanguageModel part = load_language_model(folder), whole = load_language_model(kData / "qwen3_5_text");
  const Tensor ids = integers(text_of(20));
  EXPECT_TRUE(identical(part.forward(ids), whole.forward(ids)));
}

TEST(HybridFamilies, AGateStandsBehindTheHeads) {
  LanguageModel model = load_language_model(kData / "qwen3_5_text");
  Trace trace;
  model.forward(integers(text_of(7)), &trace);
  const std::string prefix = "model.layers.1.self_attn.";
  const auto step = [&](const char* name) { return trace[prefix + name].select(0, 0).to(DType::f64); };
  const Tensor x = step("inputs"), context = step("context"), gated = step("gated"), merged = step("merged");
  Tensor q;
  for (const Parameter* p : model.parameters())
    if (p->name == prefix + "q_proj.weight") q = p->value.to(DType::f64);
  ASSERT_EQ(q.size(0), 4 * 2 * 8) << "heads, queries and gates, numbers";
  for (std::int64_t h = 0; h < 4; ++h) {
    for (std::int64_t t = 0; t < 7; ++t) {
      for (std::int64_t j = 0; j < 8; ++j) {
        double gate = 0;
        for (std::int64_t i = 0; i < x.size(1); ++i) gate += q.at({16 * h + 8 + j, i}) * x.at({t, i});
        const double wanted = context.at({h, t, j}) / (1 + std::exp(-gate));
        ASSERT_NEAR(gated.at({h, t, j}), wanted, 1e-6);
        ASSERT_EQ(merged.at({t, 8 * h + j}), gated.at({h, t, j}));
      }
    }
  }
}

}  // namespace
}  // namespace attn::test
