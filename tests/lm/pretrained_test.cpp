// Released models in and out: what is read, what is written, and what is refused.
#include "attn/pretrained.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "attn/generate.hpp"
#include "lm/helpers.hpp"
#include "ops/stored.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

void copy_model(const char* family, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(kData / family)) fs::copy_file(entry, to / entry.path().filename());
}

void change_tensors(const fs::path& folder, const std::function<void(io::NamedTensors&)>& change) {
  io::NamedTensors file = io::load(folder / "model.safetensors");
  change(file);
  io::save_safetensors(folder / "model.safetensors", file);
}

TEST(Pretrained, ReadsShards) {
  const PretrainedFiles files = open_pretrained(kData / "qwen3");
  EXPECT_EQ(files.format, "safetensors");
  EXPECT_TRUE(fs::exists(kData / "qwen3" / "model.safetensors.index.json"));
  EXPECT_EQ(files.tensors.size(), 25u);
  for (const StoredTensor& tensor : files.tensors) {
    EXPECT_EQ(tensor.dtype, "F32");
    EXPECT_EQ(tensor.load(DType::f32).shape(), tensor.shape) << tensor.name;
  }
}

TEST(Pretrained, KeepsMatricesInBfloat16) {
  LanguageModel model = load_language_model(kData / "llama", DType::bf16), exact = load_language_model(kData / "llama");
  const auto full = exact.parameters();
  std::size_t i = 0;
  for (const Parameter* p : model.parameters()) {
    const Parameter* wide = full[i++];
    const DType dtype = p->value.rank() == 2 ? DType::bf16 : DType::f32;
    EXPECT_TRUE(identical(p->value, wide->value.to(dtype))) << p->name;
  }
  // The model computes what the rounded weights give in float32.
  for (Parameter* p : exact.parameters()) {
    if (p->value.rank() == 2) p->value = p->value.to(DType::bf16).to(DType::f32);
  }
  const std::vector<std::int64_t> ids{3, 1, 4, 1, 5};
  Decoder rounded(model), wide(exact);
  expect_of_largest(rounded.read(0, ids), wide.read(0, ids), 2e-5, "logits");
  expect_error(Kind::dtype, {"float32, bfloat16 or int8"}, [] { load_language_model(kData / "llama", DType::f16); });
}

// Tied and own heads, scaled embeddings, projections that a file holds as one.
TEST(Pretrained, KeepsMatricesInEightBits) {
  for (const std::string& family : families()) {
    SCOPED_TRACE(family);
    LanguageModel model = load_language_model(kData / family, DType::i8), exact = load_language_model(kData / family);
    const auto full = exact.parameters();
    std::size_t i = 0;
    for (const Parameter* p : model.parameters()) {
      Parameter* wide = full[i++];
      EXPECT_EQ(p->scales.defined(), p->value.rank() == 2) << p->name;
      if (p->scales.defined()) wide->value = rows_of(*p, 0, p->value.size(0));
    }
    const std::vector<std::int64_t> ids{3, 1, 4, 1, 5};
    Decoder rounded(model), wide(exact);
    expect_of_largest(rounded.read(0, ids), wide.read(0, ids), 2e-5, "logits");
    expect_of_largest(rounded.read(0, ids), wide.read(0, ids), 2e-5, "logits of more");
    const Folder folder;
    expect_error(Kind::dtype, {"float32 or bfloat16", "int8"}, [&] { save_language_model(folder, model); });
    EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(folder)));
  }
}

TEST(Pretrained, SavesTheVeryTensors) {
  for (const std::string& family : families()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(family + " in " + std::string(name(dtype)));
      const Folder folder;
      LanguageModel model = load_language_model(kData / family, dtype);
      save_language_model(folder, model);
      const PretrainedFiles theirs = open_pretrained(kData / family), ours = open_pretrained(folder);
      ASSERT_EQ(theirs.tensors.size(), ours.tensors.size());
      for (const StoredTensor& tensor : theirs.tensors) {
        const auto mine = std::ranges::find(ours.tensors, tensor.name, &StoredTensor::name);
        ASSERT_NE(mine, ours.tensors.end()) << tensor.name;
        const DType kept = tensor.shape.size() == 2 ? dtype : DType::f32;
        EXPECT_EQ(mine->dtype, kept == DType::bf16 ? "BF16" : "F32") << tensor.name;
        EXPECT_TRUE(identical(mine->load(kept), tensor.load(kept))) << tensor.name;
      }
      EXPECT_EQ(io::load(folder / "model.safetensors").metadata.at("format"), "pt");
      EXPECT_NE(read(folder / "config.json").find("\"dtype\": \"" + std::string(name(dtype)) + "\""),
                std::string::npos);
    }
  }
}

// ATTN_KEEP=FOLDER keeps the model, for make_models.py --check.
TEST(Pretrained, SavesWhatTransformersReads) {
  const Folder scratch;
  const char* keep = std::getenv("ATTN_KEEP");
  const fs::path folder = keep ? fs::path(keep) : fs::path(scratch);
  const char* from = std::getenv("ATTN_FROM");
  LanguageModel model = load_language_model(from ? fs::path(from) : kData / "gguf" / "gemma3.gguf");
  save_language_model(folder, model);
  const Tensor ids = integers({5, 7, 11, 2, 9, 30}, {2, 3});
  const io::NamedTensors golden{.tensors = {{"ids", ids}, {"logits", model.forward(ids)}}};
  io::save_safetensors(folder / "logits.safetensors", golden);
  LanguageModel again = load_language_model(folder);
  EXPECT_TRUE(identical(again.forward(ids), model.forward(ids)));
  expect_error(Kind::file, {"nowhere"}, [&] { save_language_model(folder / "nowhere", model); });
}

// A model that was built, and not read, gets a config.json of its family.
TEST(Pretrained, SavesWhatWasBuilt) {
  std::vector<fs::path> all{kData / "gpt2" / "untied-bf16"};
  for (const std::string& family : families()) all.push_back(kData / family);
  const Tensor ids = integers({5, 7, 11, 2, 9, 30}, {2, 3});
  for (const fs::path& from : all) {
    SCOPED_TRACE(from);
    LanguageModel read = load_language_model(from);
    LanguageModelConfig config = read.config();
    config.json.clear();
    LanguageModel built(config);
    built.load_state_dict(read.state_dict());
    const Folder folder;
    save_language_model(folder, built);
    if (config.family != "gpt2") {  // transformers reads no padding token beyond the vocabulary, which its own may be
      EXPECT_NE(test::read(folder / "config.json").find("\"pad_token_id\": null"), std::string::npos);
    }
    LanguageModel again = load_language_model(folder);
    EXPECT_EQ(again.config().layers, read.config().layers);
    EXPECT_EQ(again.config().ropes, read.config().ropes);
    EXPECT_EQ(again.config().gated_delta, read.config().gated_delta);
    EXPECT_TRUE(identical(again.forward(ids), read.forward(ids)));
    const fs::path alone = folder / "alone.safetensors";
    save_language_model(alone, built, {{"steps", "7"}});
    fs::remove(folder / "config.json");
    LanguageModel moved = load_language_model(alone);
    EXPECT_TRUE(identical(moved.forward(ids), read.forward(ids)));
  }
  LanguageModelConfig odd = open_pretrained(kData / "llama").config;
  odd.json.clear();
  odd.attention_softcap = 2;  // which no Llama has
  expect_error(Kind::argument, {"the family llama"}, [&] { config_json(odd); });
  // transformers takes it from beside the rope parameters, or else 4096.
  LanguageModelConfig phi3 = open_pretrained(kData / "phi3").config;
  phi3.json.clear();
  EXPECT_NE(config_json(phi3).find("\n  \"original_max_position_embeddings\": 24"), std::string::npos);
}

TEST(Pretrained, EndIdsComeFromBothConfigs) {
  const Folder folder;
  copy_model("llama", folder);
  write(folder / "config.json",
        replaced(read(kData / "llama" / "config.json"), "\"eos_token_id\": null", "\"eos_token_id\": 3"));
  write(folder / "generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(open_pretrained(folder).config.end_ids, (std::vector<std::int64_t>{3, 5}));
  write(folder / "generation_config.json", R"({"eos_token_id": 5})");  // which transformers alone asks
  EXPECT_EQ(open_pretrained(folder).config.end_ids, (std::vector<std::int64_t>{5}));
  write(folder / "generation_config.json", "{}");
  EXPECT_EQ(open_pretrained(folder).config.end_ids, (std::vector<std::int64_t>{3}));
  write(folder / "generation_config.json", R"({"eos_token_id": [-1]})");
  expect_error(Kind::data, {"eos_token_id"}, [&] { open_pretrained(folder); });
}

// A folder's model is the same by the name of its file.
TEST(Pretrained, AFileHasWhatTheFolderSaysBesideIt) {
  const Folder folder;
  copy_model("llama", folder);
  const auto file = folder / "model.safetensors";
  EXPECT_EQ(open_pretrained(file).config.end_ids, open_pretrained(folder).config.end_ids);
  write(folder / "generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(open_pretrained(file).config.end_ids, (std::vector<std::int64_t>{3, 5}));
  write(folder / "generation_config.json", R"({"num_beams": 4})");
  expect_error(Kind::data, {"num_beams"}, [&] { open_pretrained(file); });
  write(folder / "generation_config.json", "{}");
  write(folder / "adapter_config.json", "{}");
  expect_error(Kind::data, {"without an adapter"}, [&] { open_pretrained(file); });
}

TEST(Pretrained, SettingsOfGenerationAreKnownOrRefused) {
  const Folder folder;
  copy_model("llama", folder);
  write(folder / "generation_config.json",
        R"({"_from_model_config": true, "bos_token_id": 1, "cache_implementation": "hybrid", "do_sample": true,
            "guidance_scale": 1.0, "num_beams": 1, "suppress_tokens": [], "temperature": 0.6, "top_k": 64})");
  EXPECT_NO_THROW(open_pretrained(folder));
  for (const auto& [key, value] : {std::pair{"num_beams", "4"},
                                   {"suppress_tokens", "[3]"},
                                   {"stop_strings", "[\"x\"]"},
                                   {"guidance_scale", "1.5"},
                                   {"forced_eos_token_id", "2"},
                                   {"of_tomorrow", "1"}}) {
    write(folder / "generation_config.json", std::string("{\"") + key + "\": " + value + "}");
    expect_error(Kind::data, {key, "generation_config.json"}, [&] { open_pretrained(folder); });
  }
}

// Released folders are mostly of bfloat16, and some of float16.
TEST(Pretrained, ReadsFilesOfHalfTheSize) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Folder folder;
    copy_model("llama", folder);
    change_tensors(folder, [&](io::NamedTensors& file) {
      for (auto& [own, tensor] : file.tensors) tensor = tensor.to(dtype);
    });
    for (const DType kept : {DType::f32, DType::bf16}) {
      LanguageModel model = load_language_model(folder, kept), exact = load_language_model(kData / "llama");
      const auto full = exact.parameters();
      std::size_t i = 0;
      for (const Parameter* p : model.parameters()) {
        const Tensor rounded = full[i++]->value.to(dtype).to(p->value.rank() == 2 ? kept : DType::f32);
        EXPECT_TRUE(identical(p->value, rounded)) << p->name;
      }
    }
  }
}

// ---- what is refused ---------------------------------------------------------------------------

TEST(PretrainedMistakes, PartsThatAreNotSupportedAreNamed) {
  const std::string llama = read(kData / "llama" / "config.json"), gemma = read(kData / "gemma3_text" / "config.json");
  const std::vector<std::pair<std::string, std::vector<std::string>>> bad{
      {"{}", {"model_type", "llama, mistral"}},
      {"[]", {"an object"}},
      {"{\"model_type\": " + std::string(300000, '[') + std::string(300000, ']') + "}", {"64 levels"}},
      {R"({"model_type": "mamba"})", {"model_type", "found \"mamba\""}},
      {R"({"model_type": "llama"})", {"vocab_size"}},
      {replaced(llama, "\"silu\"", "\"relu2\""), {"hidden_act", "relu2"}},
      {replaced(llama, "\"llama3\"", "\"warp\""), {"rope_type", "warp"}},
      {replaced(llama, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"), {"num_key_value_heads"}},
      {replaced(llama, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2000000000"),
       {"num_hidden_layers", "found 2000000000"}},
      {replaced(llama, "\"head_dim\": 6", "\"head_dim\": 2147483647"), {"head_dim"}},
      {replaced(llama, "{", "{\"partial_rotary_factor\": 0.5,"), {"partial_rotary_factor"}},
      {replaced(llama, "{", "{\"quantization_config\": {\"bits\": 4},"), {"quantization_config"}},
      {replaced(gemma, "\"full_attention\"\n", "\"linear_attention\"\n"), {"layer_types", "linear_attention"}},
      {replaced(gemma, "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true"),
       {"use_bidirectional_attention"}}};
  for (const auto& [json, parts] : bad) {
    expect_error(Kind::data, parts, [text = json] { parse_language_model_config(text, "x"); });
  }
}

// Each key of a file is read, or means nothing, or is refused by its name.
TEST(PretrainedMistakes, KeysThatNobodyReadsAreNamed) {
  const std::string llama = read(kData / "llama" / "config.json"), granite = read(kData / "granite" / "config.json");
  const auto with = [&](const std::string& key) { return replaced(llama, "{", "{" + key + ","); };
  const std::vector<std::pair<std::string, std::vector<std::string>>> bad{
      {with("\"sliding_window\": 4"), {"keys that attn reads", "sliding_window: 4"}},
      {with("\"logits_scaling\": 2"), {"logits_scaling: 2"}},
      {with("\"use_sliding_window\": true"), {"use_sliding_window to be one of [false]", "found true"}},
      {with("\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}"), {"rope_parameters"}},
      {with("\"original_max_position_embeddings\": 16"), {"original_max_position_embeddings"}},
      {replaced(llama, "\"rope_type\"", "\"mrope_section\": [1], \"rope_type\""), {"mrope_section"}},
      {replaced(read(kData / "gemma2" / "config.json"), "\"attn_logit_softcapping\": 2.0",
                "\"attn_logit_softcapping\": 0.0"),
       {"attn_logit_softcapping to be more, or null for none"}},
      {replaced(read(kData / "smollm3" / "config.json"), "1,\n    0", "2,\n    0"),
       {"no_rope_layers to be 0 and 1 alone", "found 2"}},
      {replaced(read(kData / "smollm3" / "config.json"), "1,\n    0", "true,\n    0"),
       {"no_rope_layers", "found true"}},
      {replaced(read(kData / "olmo3" / "config.json"), "\"rope_type\": \"yarn\"", "\"type\": \"yarn\""),
       {"rope_type, which alone OLMo 3 reads", "found \"yarn\""}},
      {replaced(read(kData / "olmo3" / "config.json"), "\"rope_parameters\"", "\"rope_scaling\""),
       {"rope_scaling to be without layer types"}},
      {replaced(read(kData / "gemma3_text" / "config.json"), "\"rope_parameters\"", "\"rope_scaling\""),
       {"rope_scaling to be without layer types"}},
      {with("\"rope_local_base_freq\": 30.0"), {"keys that attn reads", "rope_local_base_freq: 30"}},
      {replaced(llama, "10000.0", "0"), {"theta above 0", "in x"}},
      {replaced(llama, "\"high_freq_factor\": 4.0,", ""), {"high_freq_factor to be there, for the type llama3"}},
      {replaced(llama, "\"low_freq_factor\": 1.0,", ""), {"low_freq_factor to be there, for the type llama3"}},
      {replaced(read(kData / "qwen2" / "config.json"), "\"factor\": 4.0,", ""),
       {"factor to be there, for the type yarn"}},
      {replaced(granite, "\"embedding_multiplier\": 3.0", "\"embedding_multiplier\": \"3.0\""),
       {"embedding_multiplier to be a number", "found \"3.0\""}},
      {replaced(granite, "\"residual_multiplier\": 0.5", "\"residual_multiplier\": []"), {"residual_multiplier"}},
      {replaced(llama, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\", \"hidden_act\": \"silu\""),
       {"every key once", "\"hidden_act\" twice"}},
      {replaced(llama, "\"rope_type\"", "\"factor\": 2, \"rope_type\""), {"\"factor\" twice"}},
      {"{\n  \"a\": 1,\n  \"ä\" 2}", {"JSON", "line 3, column 7"}}};
  for (const auto& [json, parts] : bad) {
    expect_error(Kind::data, parts, [text = json] { parse_language_model_config(text, "x"); });
  }
  for (const char* nothing :
       {"\"torch_dtype\": \"float16\"", "\"sliding_window\": null", "\"top_k\": 3", "\"use_sliding_window\": false",
        "\"_num_labels\": 1", "\"gradient_checkpointing\": false"}) {
    EXPECT_NO_THROW(parse_language_model_config(with(nothing), "x")) << nothing;
  }
  const std::string drops = replaced(llama, "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.5");
  EXPECT_NO_THROW(parse_language_model_config(drops, "x"));
}

// Transformers 5 keeps a head that differs, whatever tie_word_embeddings says, and so does the library.
TEST(Pretrained, AHeadThatDiffersIsKept) {
  const auto logits = [](const fs::path& folder) { return load_language_model(folder).forward(integers({3, 1, 4})); };
  const Folder folder;
  const auto changed = [&](const char* called, float scale) {
    const fs::path copy = fs::path(folder) / called;
    fs::create_directory(copy);
    copy_model("granite", copy);  // which ties them
    change_tensors(copy, [&](io::NamedTensors& file) {
      const auto embedding = std::ranges::find(file.tensors, std::string("model.embed_tokens.weight"),
                                               [](const auto& named) { return named.first; });
      Tensor head = embedding->second.clone();
      for (std::int64_t i = 0; i < head.numel(); ++i) head.data<float>()[i] *= scale;
      if (scale == 0) {
        embedding->first = "lm_head.weight";
      } else {
        file.tensors.emplace_back("lm_head.weight", head);
      }
    });
    return logits(copy);
  };
  const Tensor tied = logits(kData / "granite"), twice = changed("own", 2);
  EXPECT_TRUE(identical(changed("same", 1), tied));
  EXPECT_TRUE(identical(changed("alone", 0), tied));
  for (std::int64_t i = 0; i < tied.numel(); ++i) EXPECT_EQ(twice.data<float>()[i], 2 * tied.data<float>()[i]);
}

// A folder with one thing changed.
void expect_refused(Kind kind, const char* family, const std::vector<std::string>& parts,
                    const std::function<void(const fs::path&)>& change) {
  SCOPED_TRACE(parts.front());
  const Folder folder;
  copy_model(family, folder);
  change(folder);
  expect_error(kind, parts, [&] { load_language_model(folder); });
}

Tensor& tensor_of(io::NamedTensors& file, const std::string& name) {
  for (auto& [own, tensor] : file.tensors) {
    if (own == name) return tensor;
  }
  throw std::runtime_error("no " + name);
}

TEST(PretrainedMistakes, OfTheFiles) {
  const char* shard = "model-00002-of-00004.safetensors";
  const auto edit_index = [](const char* from, const char* to) {
    return [=](const fs::path& folder) {
      const fs::path index = folder / "model.safetensors.index.json";
      write(index, replaced(read(index), from, to));
    };
  };
  expect_refused(Kind::file, "qwen3", {shard}, [&](const fs::path& f) { fs::remove(f / shard); });
  expect_refused(Kind::data, "qwen3", {"cut off", shard},
                 [&](const fs::path& f) { fs::resize_file(f / shard, fs::file_size(f / shard) - 4); });
  expect_refused(Kind::data, "qwen3", {"8 bytes", shard}, [&](const fs::path& f) { write(f / shard, "abc"); });
  expect_refused(Kind::data, "qwen3", {"a file beside it"}, edit_index(shard, "../secret"));
  expect_refused(Kind::data, "qwen3", {"as the index says"}, edit_index("model.norm.weight", "model.norm.other"));
  expect_refused(Kind::data, "qwen3", {"weight_map"}, edit_index("weight_map", "other_map"));
  expect_refused(Kind::file, "llama", {"model.safetensors"},
                 [](const fs::path& f) { fs::remove(f / "model.safetensors"); });
  expect_refused(Kind::file, "llama", {"config.json"}, [](const fs::path& f) { fs::remove(f / "config.json"); });
  expect_refused(Kind::data, "llama", {"JSON"}, [](const fs::path& f) { write(f / "config.json", "{"); });
  for (const char* key : {"encoder_repetition_penalty", "encoder_no_repeat_ngram_size"}) {
    expect_refused(Kind::data, "llama", {key}, [&](const fs::path& f) {
      write(f / "generation_config.json", std::string("{\"") + key + "\": 8}");
    });
  }
}

TEST(PretrainedMistakes, OfAFileThatIsNoModel) {
  const Folder folder;
  for (const char* content : {"# A document of some words", "\x80\x02}q\x01(X\x05weights"}) {
    write(folder / "notes", content);
    expect_error(Kind::file, {"a folder, a safetensors or a GGUF file", "notes"},
                 [&] { open_pretrained(folder / "notes"); });
  }
}

TEST(PretrainedMistakes, OfTheTensors) {
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  const auto with = [](const std::function<void(io::NamedTensors&)>& change) {
    return [=](const fs::path& folder) { change_tensors(folder, change); };
  };
  expect_refused(Kind::data, "llama", {up, "(20, 16)", "(16, 20)"}, with([&](io::NamedTensors& file) {
                   Tensor& t = tensor_of(file, up);
                   t = t.transpose(0, 1).contiguous();
                 }));
  expect_refused(Kind::data, "llama", {up, "floating"}, with([&](io::NamedTensors& file) {
                   tensor_of(file, up) = Tensor::zeros({20, 16}, DType::i8);
                 }));
  expect_refused(Kind::data, "llama", {"a tensor " + up}, with([&](io::NamedTensors& file) {
                   for (auto& [name, tensor] : file.tensors) name = name == up ? "other" : name;
                 }));
  expect_refused(Kind::data, "llama", {"only tensors", "model.layers.2"}, with([&](io::NamedTensors& file) {
                   file.tensors.emplace_back("model.layers.2.mlp.up_proj.weight", Tensor::ones({20, 16}));
                 }));
  expect_refused(Kind::data, "llama", {"a dtype of F64", "F8_E4M3"}, [](const fs::path& folder) {
    const std::string bytes = read(folder / "model.safetensors");
    write(folder / "model.safetensors", replaced(bytes, "\"F32\"", "\"F8_E4M3\""));
  });
  // Sizes that lie are seen before memory is taken for them.
  for (const auto& [key, lie] : {std::pair{"hidden_size\": 16", "hidden_size\": 1073741824"},
                                 {"intermediate_size\": 20", "intermediate_size\": 2147483647"},
                                 {"vocab_size\": 61", "vocab_size\": 2147483647"},
                                 {"num_hidden_layers\": 2", "num_hidden_layers\": 4000"},
                                 {"num_attention_heads\": 4", "num_attention_heads\": 100000000"}}) {
    expect_refused(Kind::data, "llama", {"expected"}, [&, from = key, to = lie](const fs::path& folder) {
      write(folder / "config.json", replaced(read(folder / "config.json"), from, to));
    });
  }
}

TEST(PretrainedMistakes, OfAGgufFile) {
  const std::string bytes = read(kData / "gguf" / "llama.gguf");
  const Folder folder;
  const fs::path file = folder / "x.gguf";
  const auto expect = [&](const std::vector<std::string>& parts, const std::string& changed) {
    write(file, changed);
    expect_error(Kind::data, parts, [&] { load_language_model(file); });
  };
  expect({"an architecture among llama"}, replaced(bytes, "llama", "mamba"));  // the first one is the architecture
  expect({"cut off"}, bytes.substr(0, bytes.size() - 100));
  std::string headless = bytes;  // a key, its kind (4 bytes), and the number
  constexpr std::string_view key = "llama.attention.head_count";
  headless.replace(headless.find(key) + key.size() + 4, 4, 4, '\0');
  expect({"attention.head_count of 1 or more"}, headless);
  expect({"llama.block_count"}, replaced(bytes, "llama.block_count", "llama.block_c0unt"));
  expect({"only tensors of architecture llama"}, replaced(bytes, "blk.1.ffn_up.weight", "blk.1.ffn_xp.weight"));
  expect({"twice"}, replaced(bytes, "blk.1.ffn_up.weight", "blk.0.ffn_up.weight"));
  expect_error(Kind::file, {"missing.gguf"}, [&] { load_language_model(folder / "missing.gguf"); });
}

TEST(PretrainedMistakes, OfTheText) {
  LanguageModel model = load_language_model(kData / "llama");
  Decoder decoder(model, 2);
  const std::vector<std::int64_t> longest(64, 1), more{1}, wrong{61}, none;
  decoder.read(0, longest);
  expect_error(Kind::shape, {"context_length = 64"}, [&] { decoder.read(0, more); });
  expect_error(Kind::shape, {"context_length = 64"}, [&] { decoder.read(std::vector<std::int64_t>{1, 1}); });
  expect_error(Kind::argument, {"[0, 61)"}, [&] { decoder.read(1, wrong); });
  expect_error(Kind::shape, {"ids"}, [&] { decoder.read(1, none); });
  expect_error(Kind::argument, {"an item"}, [&] { decoder.read(2, more); });
  expect_error(Kind::shape, {"2 texts"}, [&] { decoder.read(more); });
  EXPECT_EQ(decoder.length(0), 64);
  EXPECT_EQ(decoder.length(1), 0);
}

}  // namespace
}  // namespace attn::test
