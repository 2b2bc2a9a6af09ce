// BERT beside transformers (make_models.py): hidden states, gradients, vectors of texts, and what is refused.
#include "attn/encoder.hpp"

#include <cmath>

#include "attn/trace.hpp"
#include "core/folder.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;
using Texts = std::vector<std::vector<std::int64_t>>;

const fs::path kBert = kData / "bert";

TEST(Encoder, HasTransformersHiddenStatesAndGradients) {
  const io::NamedTensors golden = io::load(kBert / "golden.safetensors");
  Encoder encoder = load_encoder(kBert);
  const Tensor ids = *golden.find("ids");
  expect_of_largest(encoder.forward(ids), *golden.find("hidden"), 2e-6, "hidden");
  encoder.backward(*golden.find("d_hidden"));
  for (const Parameter* p : encoder.parameters()) {
    const Tensor* wanted = golden.find("grad." + p->name);
    ASSERT_NE(wanted, nullptr) << p->name;
    // Keys' biases shift all scores of a query alike: their gradients are rounding.
    if (p->name.ends_with("key.bias")) continue;
    expect_of_largest(p->grad, *wanted, 2e-5, p->name);
  }
}

TEST(Encoder, ATextIsTheSameWhateverIsBesideIt) {
  Encoder encoder = load_encoder(kBert);
  const Texts texts{{5, 7, 11}, {1}, {2, 9, 30, 60, 0, 4, 4, 8}, {5, 7, 11, 12}};
  for (const Pooling pooling : {Pooling::mean, Pooling::first}) {
    const Tensor all = encoder.embed(texts, pooling);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Tensor alone = encoder.embed(std::span(texts).subspan(i, 1), pooling);
      EXPECT_TRUE(identical(alone.select(0, 0), all.select(0, static_cast<std::int64_t>(i)))) << i;
    }
  }
}

TEST(Encoder, PoolsNothingOfNoTokens) {
  for (const Pooling pooling : {Pooling::first, Pooling::mean}) {
    expect_error(Error::Kind::shape, {"at least one token", "(0, 3)"}, [&] {
      pool(Tensor::ones({0, 3}), pooling, false);
    });
    expect_error(Error::Kind::shape, {"at least one token"}, [&] { pool(Tensor(), pooling, false); });
    const Tensor column = Tensor::of({{1.0, 9.0}, {3.0, 9.0}}).transpose(0, 1).slice(0, 0, 1);
    EXPECT_EQ(values(pool(column, pooling, false)), (std::vector<double>{1, 3}));
  }
}

TEST(Encoder, PoolsHiddenStates) {
  Encoder encoder = load_encoder(kBert);
  const Texts texts{{5, 7, 11, 2}};
  const Tensor hidden = encoder.forward(integers(texts[0]));
  const Tensor mean = encoder.embed(texts, Pooling::mean, false), first = encoder.embed(texts, Pooling::first, false);
  const Tensor normalised = encoder.embed(texts);
  double squares = 0;
  for (std::int64_t j = 0; j < 16; ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < 4; ++i) sum += hidden.at({i, j});
    EXPECT_NEAR(mean.at({0, j}), sum / 4, 1e-6);
    EXPECT_NEAR(first.at({0, j}), hidden.at({0, j}), 1e-6);
    squares += normalised.at({0, j}) * normalised.at({0, j});
  }
  EXPECT_NEAR(squares, 1, 1e-6);
}

TEST(Encoder, RecordsEveryHeadsSteps) {
  Encoder encoder = load_encoder(kBert);
  const Tensor ids = integers({5, 7, 11, 2});
  Trace trace;
  const Tensor y = encoder.forward(ids, &trace);
  const Tensor weights = trace["encoder.layer.1.attention.weights"].select(0, 0);
  EXPECT_EQ(weights.shape().str(), "(4, 4, 4)");
  for (std::int64_t h = 0; h < 4; ++h) {  // every token sees all of the text
    for (std::int64_t i = 0; i < 4; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 4; ++j) {
        sum += weights.at({h, i, j});
        EXPECT_GT(weights.at({h, i, j}), 0);
      }
      EXPECT_NEAR(sum, 1, 1e-6);
    }
  }
  EXPECT_TRUE(identical(trace["encoder.layer.1.output"].select(0, 0), y));
}

TEST(Encoder, RefusesWhatDoesNotFit) {
  Encoder encoder = load_encoder(kBert);
  expect_error(Kind::argument, {"at least one text"}, [&] { encoder.embed(Texts{}); });
  expect_error(Kind::argument, {"at least one token"}, [&] { encoder.embed(Texts{{1}, {}}); });
  expect_error(Kind::argument, {"[0, 61)"}, [&] { encoder.embed(Texts{{61}}); });
  expect_error(Kind::shape, {"24"}, [&] { encoder.embed(Texts{std::vector<std::int64_t>(25, 1)}); });
  encoder.embed(Texts{{1}});
  expect_error(Kind::argument, {"forward()"}, [&] { encoder.backward(Tensor::ones({1, 16})); });
  const auto config = [&](const std::string& key, const std::string& part) {
    const std::string json = R"({"model_type": "bert", )" + key + "}";
    expect_error(Kind::data, {part}, [&] { parse_encoder_config(json, "x"); });
  };
  config("\"position_embedding_type\": \"relative_key\"", "position_embedding_type");
  config("\"hidden_act\": \"relu\"", "hidden_act");
  config("\"attention_probs_dropout_prob\": 0.3", "attention_probs_dropout_prob");
  config("\"is_decoder\": true", "is_decoder");
  config("\"a_new_key\": 1", "a_new_key");
  config("\"num_hidden_layers\": 2147483647", "num_hidden_layers");
  config("\"hidden_size\": 10, \"num_attention_heads\": 4", "hidden_size");
  expect_error(Kind::data, {"model_type"}, [&] { load_encoder(kData / "llama"); });
}

TEST(Encoder, NamesWhatIsWrongInItsFiles) {
  const auto changed = [](const std::function<void(io::NamedTensors&)>& change, const std::string& part) {
    const Folder folder;
    fs::copy_file(kBert / "config.json", folder / "config.json");
    io::NamedTensors file = io::load(kBert / "model.safetensors");
    change(file);
    io::save_safetensors(folder / "model.safetensors", file);
    expect_error(Kind::data, {part}, [&] { load_encoder(folder); });
  };
  changed([](auto& f) { f.tensors.pop_back(); }, "a tensor ");
  changed([](auto& f) { f.tensors[0].second = Tensor::ones({2, 2}); }, "as the config says");
  changed([](auto& f) { f.tensors.emplace_back("encoder.layer.7.output.dense.bias", Tensor::ones({16})); }, "layer.7");
  changed([](auto& f) { f.tensors.emplace_back("other.weight", Tensor::ones({16})); }, "other.weight");
}

TEST(Encoder, WithAnAdapterBesideItIsRefused) {
  const Folder folder;
  for (const char* name : {"config.json", "model.safetensors"}) fs::copy_file(kBert / name, folder / name);
  load_encoder(folder);
  io::save_text(folder / "adapter_config.json", "{}");
  expect_error(Kind::data, {"without an adapter", "found adapter_config.json"}, [&] { load_encoder(folder); });
}

// Heads for other tasks keep the encoder under "bert.", and older files keep its positions' numbers.
TEST(Encoder, ReadsTheFilesOfItsHeads) {
  const Folder folder;
  fs::copy_file(kBert / "config.json", folder / "config.json");
  io::NamedTensors file = io::load(kBert / "model.safetensors");
  for (auto& [name, value] : file.tensors) name = "bert." + name;
  file.tensors.emplace_back("bert.embeddings.position_ids", Tensor::ones({1, 8}));
  file.tensors.emplace_back("cls.predictions.bias", Tensor::ones({8}));
  io::save_safetensors(folder / "model.safetensors", file);
  const Tensor ids = *io::load(kBert / "golden.safetensors").find("ids");
  EXPECT_EQ(values(load_encoder(folder).forward(ids)), values(load_encoder(kBert).forward(ids)));
}

TEST(Encoder, IsReadFromBytes) {
  const std::string weights = read(kBert / "model.safetensors"), config = read(kBert / "config.json");
  const auto bytes = std::as_bytes(std::span(weights));
  const Tensor ids = *io::load(kBert / "golden.safetensors").find("ids");
  EXPECT_EQ(values(load_encoder(bytes, config, "memory").forward(ids)), values(load_encoder(kBert).forward(ids)));
  expect_error(Kind::data, {"memory"}, [&] { load_encoder(bytes.first(bytes.size() / 2), config, "memory"); });
  expect_error(Kind::data, {"config.json", "model_type"},
               [&] { load_encoder(bytes, R"({"model_type": "gpt2"})", "memory"); });
}

TEST(Encoder, IsReadFromGguf) {
  Encoder folder = load_encoder(kBert), file = load_encoder(kBert / "model.gguf");
  const auto wanted = folder.parameters(), found = file.parameters();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    expect_of_largest(found[i]->value, wanted[i]->value, 0, wanted[i]->name);
  EXPECT_EQ(static_cast<float>(file.config().model.epsilon), static_cast<float>(folder.config().model.epsilon));
  const EmbeddingSettings settings = embedding_settings(kBert / "model.gguf");
  EXPECT_EQ(settings.pooling, Pooling::first);
  EXPECT_TRUE(settings.normalised);
  expect_error(Kind::data, {"the architecture bert", "llama"}, [&] { load_encoder(kData / "gguf" / "llama.gguf"); });
}

TEST(Encoder, FollowsSentenceTransformersFiles) {
  const Folder folder;
  EXPECT_FALSE(embedding_settings(folder).normalised);
  expect_error(Kind::file, {"an encoder's folder", "nowhere"}, [&] { embedding_settings(folder / "nowhere"); });
  const auto modules = [&](const std::string& list) { io::save_text(folder / "modules.json", "[" + list + "]"); };
  const std::string
      whole =
          R"({"idx": 0, "name": "0", "type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"})",
      divided = R"({"type": "x.Normalize", "path": "2_Normalize"})";
  modules(whole);
  expect_error(Kind::file, {"1_Pooling"}, [&] { embedding_settings(folder); });
  fs::create_directory(folder / "1_Pooling");
  const auto pooling = [&](const char* json) { io::save_text(folder / "1_Pooling" / "config.json", json); };
  pooling(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  EXPECT_EQ(embedding_settings(folder).pooling, Pooling::first);
  EXPECT_FALSE(embedding_settings(folder).normalised);
  modules(whole + "," + divided);
  EXPECT_TRUE(embedding_settings(folder).normalised);
  pooling(R"({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": false})");
  expect_error(Kind::data, {"pooling_mode_max_tokens"}, [&] { embedding_settings(folder); });
  pooling(R"({"pooling_mode_mean_tokens": false})");
  expect_error(Kind::data, {"pooling_mode_mean_tokens"}, [&] { embedding_settings(folder); });
  pooling(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})");
  expect_error(Kind::data, {"pooling_mode_cls_token to be false", "found true"}, [&] { embedding_settings(folder); });
  pooling(R"({"pooling_mode": "cls", "embedding_dimension": 16, "include_prompt": true})");
  EXPECT_EQ(embedding_settings(folder).pooling, Pooling::first);
  const auto cut_at = [&](const char* json) { io::save_text(folder / "sentence_bert_config.json", json); };
  cut_at(R"({"max_seq_length": 2})");
  EXPECT_EQ(embedding_settings(folder).longest, 2);
  cut_at(R"({"max_seq_length": 1})");
  expect_error(Kind::data, {"max_seq_length to be at least 2"}, [&] { embedding_settings(folder); });
  // Its name was that of the kind of model once. The first of these files that says anything counts.
  cut_at("{}");
  io::save_text(folder / "sentence_xlnet_config.json", R"({"max_seq_length": 5})");
  EXPECT_EQ(embedding_settings(folder).longest, 5);
  io::save_text(folder / "sentence_xlm-roberta_config.json", R"({"max_seq_length": 4, "do_lower_case": true})");
  expect_error(Kind::data, {"do_lower_case"}, [&] { embedding_settings(folder); });
  io::save_text(folder / "sentence_roberta_config.json", R"({"max_seq_length": 3})");
  EXPECT_EQ(embedding_settings(folder).longest, 3);
  cut_at(R"({"do_lower_case": false})");
  EXPECT_GT(embedding_settings(folder).longest, 5);
  for (const char* kind : {"bert", "roberta", "xlm-roberta", "xlnet"})
    fs::remove(folder / ("sentence_" + std::string(kind) + "_config.json"));
  const auto tokenizer = [&](const char* json) { io::save_text(folder / "tokenizer_config.json", json); };
  tokenizer(R"({"max_len": 9})");
  EXPECT_EQ(embedding_settings(folder).longest, 9);
  tokenizer(R"({"max_len": 9, "model_max_length": 7})");
  EXPECT_EQ(embedding_settings(folder).longest, 7);
  pooling(R"({"pooling_mode": "lasttoken"})");
  expect_error(Kind::data, {"pooling_mode", "lasttoken"}, [&] { embedding_settings(folder); });
  pooling(R"({"pooling_mode_mean_tokens": true, "include_prompt": false})");
  expect_error(Kind::data, {"include_prompt"}, [&] { embedding_settings(folder); });
  for (const auto& [list, part] : std::initializer_list<std::pair<std::string, const char*>>{
           {replaced(whole, "1_Pooling", "2_Pooling"), "2_Pooling"},
           {replaced(whole, R"("path": "")", R"("path": "0_Transformer")"), "0_Transformer"},
           {whole + R"(, {"type": "x.Dense", "path": "2_Dense"})", "x.Dense"},
           {replaced(whole, R"("path": "")", R"("path": "", "kwargs": ["task"])"), "kwargs"},
           {divided + "," + whole, "in this order"},
           {whole + "," + divided + "," + divided, "in this order"},
           {R"({"type": "x.Transformer", "path": ""})", "a module Pooling"},
           {"", "a module Pooling"},
           {"3", "number"}}) {
    modules(list);
    expect_error(Kind::data, {part}, [&] { embedding_settings(folder); });
  }
  io::save_text(folder / "modules.json", "[\n  {]");
  expect_error(Kind::data, {"line 2, column 4"}, [&] { embedding_settings(folder); });
}

TEST(Encoder, HasTheGradientsOfTheIdsThatWereRead) {
  Encoder encoder = load_encoder(kBert);
  const auto gradient = [&](bool reused) {
    const Tensor ids = integers({5, 7, 11});
    encoder.zero_grad();
    const Tensor hidden = encoder.forward(ids);
    if (reused) ids.fill(1 << 30);
    encoder.backward(Tensor::ones(hidden.shape()));
    return encoder.words.grad.clone();
  };
  EXPECT_TRUE(identical(gradient(true), gradient(false)));
}

TEST(Encoder, RefusesASmallerTableThanTheForwardPassHad) {
  Encoder encoder = load_encoder(kBert);
  const Tensor ids = integers({5, 7, 11}), g = Tensor::ones(encoder.forward(ids).shape());
  for (Parameter* table : {&encoder.words, &encoder.positions, &encoder.types}) {
    const Tensor whole = table->value;
    for (const Tensor& other : {whole.slice(0, 0, 0).clone(), whole.slice(1, 0, whole.size(1) - 1).clone()}) {
      encoder.zero_grad();
      encoder.forward(ids);
      table->value = other;
      expect_error(Kind::shape, {"columns and more than", other.shape().str()}, [&] { encoder.backward(g); });
      EXPECT_THROW(encoder.forward(ids), Error);
      table->value = whole;
    }
  }
}

}  // namespace
}  // namespace attn::test
