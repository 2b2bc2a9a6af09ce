// Hugging Face's GPT-2 in and out, beside the logits that transformers computes (make_gpt2.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "core/folder.hpp"
#include "core/largest.hpp"

namespace attn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kData = fs::path(ATTN_TEST_DATA) / "gpt2";
const char* const kCases[] = {"tied-tanh-f32", "tied-gelu-f16", "untied-bf16", "bare-2019-f32"};

// Both are float32 sums over a width of 16 and 64 and two layers, in other orders.
void expect_logits(GPT& model, const fs::path& folder) {
  const Tensor ids = io::load_tensor(folder / "logits.safetensors", "ids");
  const Tensor wanted = io::load_tensor(folder / "logits.safetensors", "logits");
  const Tensor found = model.forward(ids);
  EXPECT_GT(largest(wanted), 1);
  expect_of_largest(found, wanted, 16 * std::numeric_limits<float>::epsilon(), folder.string());
}

TEST(Checkpoint, GivesTransformersLogits) {
  for (const char* name : kCases) {
    GPT model = load_gpt(kData / name);
    EXPECT_EQ(model.config().layers, 2);
    EXPECT_EQ(model.config().tied, std::string(name) != "untied-bf16");
    EXPECT_EQ(model.config().gelu, std::string(name) == "tied-gelu-f16" ? Activation::gelu : Activation::gelu_tanh);
    expect_logits(model, kData / name);
  }
}

TEST(Checkpoint, SavesTransformersVeryTensors) {
  const Folder folder;
  for (const char* name : {"tied-tanh-f32", "untied-bf16"}) {
    GPT model = load_gpt(kData / name);
    save_language_model(folder, model);
    const auto theirs = io::load(kData / name / "model.safetensors"), ours = io::load(folder / "model.safetensors");
    EXPECT_EQ(theirs.tensors.size(), ours.tensors.size());
    EXPECT_EQ(ours.metadata.at("format"), "pt");
    for (const auto& [key, tensor] : theirs.tensors) {
      const Tensor* mine = ours.find(key);
      ASSERT_NE(mine, nullptr) << key;
      ASSERT_TRUE(mine->shape() == tensor.shape()) << key;
      const Tensor a = mine->view({-1}), b = tensor.view({-1});
      for (std::int64_t i = 0; i < a.numel(); ++i) ASSERT_EQ(a.at({i}), b.at({i})) << key;
    }
  }
}

// ATTN_KEEP=FOLDER keeps the model, for make_gpt2.py --check.
TEST(Checkpoint, SavesWhatTransformersReads) {
  const Folder scratch;
  const char* keep = std::getenv("ATTN_KEEP");
  const fs::path folder = keep ? fs::path(keep) : fs::path(scratch);
  Generator rng(3);
  GPT model({.vocab_size = 50, .context_length = 9, .layers = 3, .heads = 4, .width = 24, .gelu = Activation::gelu},
            rng);
  save_language_model(folder, model, {{"training.step", "7"}});
  const Tensor ids = rng.randint(0, 50, {2, 9});
  const io::NamedTensors golden{.tensors = {{"ids", ids}, {"logits", model.forward(ids)}}};
  io::save_safetensors(folder / "logits.safetensors", golden);

  GPT again = load_gpt(folder);
  EXPECT_EQ(again.config().gelu, Activation::gelu);
  const auto mine = model.state_dict(), read_back = again.state_dict();
  ASSERT_EQ(mine.size(), read_back.size());
  for (const auto& [key, value] : mine) {
    const Tensor a = value.view({-1}), b = read_back.at(key).view({-1});
    for (std::int64_t i = 0; i < a.numel(); ++i) ASSERT_EQ(a.at({i}), b.at({i})) << key;
  }
  EXPECT_EQ(io::load(folder / "model.safetensors").metadata.at("training.step"), "7");
  EXPECT_EQ(parse_gpt_config(read(folder / "config.json"), "x"), model.config());
}

TEST(Checkpoint, OneFileIsEnough) {
  const Folder folder;
  GPT model = load_gpt(kData / "tied-tanh-f32");
  save_language_model(folder / "other.safetensors", model);
  EXPECT_FALSE(fs::exists(folder / "config.json"));
  fs::rename(folder / "other.safetensors", folder / "moved.safetensors");
  GPT again = load_gpt(folder / "moved.safetensors");
  expect_logits(again, kData / "tied-tanh-f32");
}

TEST(Checkpoint, ConfigsComeBack) {
  for (const char* size : {"117M", "345M", "762M", "1.5B"}) {
    const GPTConfig config = gpt2(size);
    EXPECT_EQ(parse_gpt_config(gpt_config_json(config), "x"), config);
  }
  GPTConfig config{.vocab_size = 300, .dropout = 0.25, .epsilon = 1e-6, .gelu = Activation::gelu, .tied = false};
  EXPECT_EQ(parse_gpt_config(gpt_config_json(config), "x"), config);
  EXPECT_EQ(parse_gpt_config("{}", "x"), gpt2("117M"));  // GPT2Config's defaults
}

// ---- what does not fit ----------------------------------------------------------------

TEST(Checkpoint, RejectsConfigsThatItCannotBe) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "JSON"},
      {"[1]", "an object"},
      {R"({"model_type": "llama"})", "model_type"},
      {R"({"activation_function": "relu"})", "gelu_new"},
      {R"({"n_embd": 0})", "n_embd"},
      {R"({"n_embd": -8})", "n_embd"},
      {R"({"n_embd": 768.5})", "n_embd"},
      {R"({"n_embd": "768"})", "n_embd"},
      {R"({"n_layer": 1e99})", "n_layer"},
      {R"({"n_layer": 18446744073709551615})", "n_layer"},
      {R"({"n_head": 7})", "n_head"},
      {R"({"n_inner": 100})", "n_inner"},
      {R"({"layer_norm_epsilon": 0})", "layer_norm_epsilon"},
      {R"({"resid_pdrop": 2})", "resid_pdrop"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings"},
      {R"({"scale_attn_weights": false})", "scale_attn_weights"},
      {R"({"add_cross_attention": true})", "add_cross_attention"},
      {R"({"attn_pdrop": 0.2})", "attn_pdrop"},
      {R"({"n_ctx": 512})", "n_ctx"},
      {R"({"hidden_size": 768})", "hidden_size"},  // GPT2Config's other name of n_embd
      {R"({"unknown": [1]})", "unknown"},
  };
  for (const auto& [json, part] : bad) {
    expect_error(Error::Kind::data, {part}, [json = json] { parse_gpt_config(json, "x"); });
  }
  expect_error(Error::Kind::data, {"JSON"}, [] { parse_gpt_config(std::string(1000000, '['), "x"); });
  EXPECT_EQ(parse_gpt_config(R"({"n_inner": null, "n_ctx": 1024, "summary_type": "cls_index", "eos_token_id": 50256,
                                 "reorder_and_upcast_attn": true, "_num_labels": 1, "n_special": 0,
                                 "predict_special_tokens": true})",
                             "x"),
            gpt2("117M"));
}

// The file, changed in one place, with a config of its own.
void expect_rejected(const std::string& part, const std::string& config,
                     const std::function<void(std::vector<std::pair<std::string, Tensor>>&)>& change) {
  const Folder folder;
  auto file = io::load(kData / "tied-tanh-f32" / "model.safetensors");
  change(file.tensors);
  io::save_safetensors(folder / "model.safetensors", file);
  io::save_text(folder / "config.json", config);
  expect_error(Error::Kind::data, {part}, [&] { load_gpt(folder); });
}

TEST(Checkpoint, RejectsTensorsThatAreNotTheConfigs) {
  const std::string config = read(kData / "tied-tanh-f32" / "config.json");
  const auto with = [&](const char* from, const char* to) {
    std::string changed = config;
    EXPECT_NE(changed.find(from), std::string::npos) << from;
    return changed.replace(changed.find(from), std::string(from).size(), to);
  };
  const auto none = [](auto&) {};
  const auto rename = [](const char* from, const char* to) {
    return [=](auto& tensors) {
      for (auto& [name, tensor] : tensors) name = name == from ? to : name;
    };
  };
  const char* c_attn = "transformer.h.1.attn.c_attn.weight";
  expect_rejected("h.1.attn.c_attn.weight", config, rename(c_attn, "transformer.h.1.attn.other"));
  expect_rejected("\"h.2.ln_1.weight\"", config,
                  [](auto& t) { t.emplace_back("h.2.ln_1.weight", Tensor::ones({16})); });
  expect_rejected("twice", config, [](auto& t) { t.emplace_back("ln_f.bias", Tensor::ones({16})); });
  expect_rejected("(16, 48)", config, [&](auto& tensors) {
    for (auto& [name, tensor] : tensors) tensor = name == c_attn ? tensor.transpose(0, 1).contiguous() : tensor;
  });
  expect_rejected("a floating dtype", config, [&](auto& tensors) {
    for (auto& [name, tensor] : tensors) tensor = name == c_attn ? Tensor::zeros(tensor.shape(), DType::i8) : tensor;
  });
  expect_rejected("a tensor h.2.ln_1.weight", with("\"n_layer\": 2", "\"n_layer\": 3"), none);
  expect_rejected("layers", with("\"n_layer\": 2", "\"n_layer\": 2147483647"), none);
  expect_rejected("only tensors", with("\"n_layer\": 2", "\"n_layer\": 1"), none);
  expect_rejected("wte.weight of shape", with("\"n_embd\": 16", "\"n_embd\": 2147483646"), none);
  expect_rejected("wpe.weight of shape", with("\"n_positions\": 12", "\"n_positions\": 2000000000"), none);
  expect_rejected("lm_head.weight", with("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"), none);
  expect_rejected("JSON", "{", none);
}

// Older files hold the causal masks, as bytes or booleans.
TEST(Checkpoint, MasksOfAnyDtypeArePassedOver) {
  const Folder folder;
  auto file = io::load(kData / "tied-tanh-f32" / "model.safetensors");
  file.tensors.emplace_back("transformer.h.0.attn.bias", Tensor::full({1, 1, 12, 12}, 1, DType::u8));
  file.tensors.emplace_back("transformer.h.1.attn.bias", Tensor::full({1, 1, 12, 12}, 1, DType::boolean));
  io::save_safetensors(folder / "model.safetensors", file);
  fs::copy_file(kData / "tied-tanh-f32" / "config.json", folder / "config.json");
  GPT model = load_gpt(folder);
  expect_logits(model, kData / "tied-tanh-f32");
}

TEST(Checkpoint, MissingFilesAreErrors) {
  const Folder folder;
  expect_error(Error::Kind::file, {"config.json"}, [&] { load_gpt(folder); });
  io::save_text(folder / "config.json", "{\"model_type\": \"gpt2\"}");
  expect_error(Error::Kind::file, {"model.safetensors"}, [&] { load_gpt(folder); });
  fs::remove(folder / "config.json");
  fs::copy_file(kData / "tied-tanh-f32" / "model.safetensors", folder / "x.safetensors");
  expect_error(Error::Kind::file, {"config.json"}, [&] { load_gpt(folder / "x.safetensors"); });
  io::save_text(folder / "text.safetensors", "1,2\n");
  expect_error(Error::Kind::data, {"safetensors"}, [&] { load_gpt(folder / "text.safetensors"); });
  Generator rng(1);
  GPT model({.vocab_size = 5, .context_length = 2, .layers = 1, .heads = 1, .width = 2}, rng);
  expect_error(Error::Kind::file, {"nowhere"},
               [&] { save_language_model(folder / "nowhere" / "model.safetensors", model); });
  expect_error(Error::Kind::argument, {"config"}, [&] { save_language_model(folder, model, {{"config", ""}}); });
}

}  // namespace
}  // namespace attn::test
