// Tensors by the names that files have for them: of base models, of the first BERTs, and of GGUF in messages.
#include <functional>

#include "attn/encoder.hpp"
#include "core/folder.hpp"
#include "lm/gguf_bytes.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;
using Rename = std::function<std::string(const std::string&)>;

// A folder of these tensors under other names.
void rename_into(const fs::path& folder, const fs::path& from, const Rename& rename) {
  fs::copy_file(from / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
  io::NamedTensors file = io::load(from / "model.safetensors");
  for (auto& [name, value] : file.tensors) name = rename(name);
  io::save_safetensors(folder / "model.safetensors", file);
}

// AutoModel saves a base model so; a head stands beside it where it is another.
TEST(TensorNames, OfBaseModelsLackTheWholeModelsPrefix) {
  const Folder folder;
  const Tensor ids = integers({5, 7, 11, 2, 9});
  for (const char* const family : {"llama", "gemma2", "olmo_hybrid", "qwen3_5_text"}) {
    const fs::path from = kData / family;
    const std::string prefix = "model.";
    const auto bare = [&](const std::string& name) { return name.starts_with(prefix) ? name.substr(6) : name; };
    rename_into(folder, from, bare);
    EXPECT_TRUE(identical(load_language_model(folder).forward(ids), load_language_model(from).forward(ids))) << family;
    rename_into(folder, from, [&](const std::string& name) { return prefix + name; });
    expect_error(Kind::data, {"a tensor model.embed_tokens.weight"}, [&] { load_language_model(folder); });
  }
}

TEST(TensorNames, OfTheFirstBertsAreTensorFlows) {
  const Folder folder;
  const fs::path from = kData / "bert";
  const auto older = [](std::string name) {
    if (name.ends_with("LayerNorm.weight")) name.replace(name.rfind('.') + 1, 6, "gamma");
    if (name.ends_with("LayerNorm.bias")) name.replace(name.rfind('.') + 1, 4, "beta");
    return "bert." + name;
  };
  rename_into(folder, from, older);
  const Tensor ids = integers({5, 7, 11, 2, 9});
  EXPECT_TRUE(identical(load_encoder(folder).forward(ids), load_encoder(from).forward(ids)));
}

// transformers takes every tensor of the shards, and of two of one name the last one; vLLM takes that of the index.
TEST(TensorNames, OfShardsAreNotChosenByTheIndex) {
  const Folder folder;
  fs::copy(kData / "qwen3", folder, fs::copy_options::recursive);
  const fs::path index = folder / "model.safetensors.index.json";
  const std::string entry = ",\n    \"model.norm.weight\": \"model-00003-of-00004.safetensors\"";
  write(index, replaced(read(index), entry, ""));
  const Tensor ids = integers({5, 7, 11});
  EXPECT_TRUE(identical(load_language_model(folder).forward(ids), load_language_model(kData / "qwen3").forward(ids)));
  const fs::path last = folder / "model-00003-of-00004.safetensors";
  io::NamedTensors file = io::load(last);
  file.tensors.emplace_back("model.embed_tokens.weight", Tensor::ones({61, 16}));
  io::save_safetensors(last, file);
  expect_error(Kind::data, {"every tensor once", "\"model.embed_tokens.weight\" twice"},
               [&] { load_language_model(folder); });
}

// Returns the message of the error that a call throws, and nothing where it throws none.
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Leaves out or cuts each tensor of the file: the message has the file's names, and none of Hugging Face's.
void expect_own_names(const fs::path& file, const std::function<void(const fs::path&)>& load) {
  const GgufBytes honest(read(file));
  const Folder folder;
  const fs::path path = folder / "x.gguf";
  std::size_t refused = 0;
  for (std::size_t i = 0; i < honest.tensors.size(); ++i) {
    GgufBytes without = honest, cut = honest;
    without.tensors.erase(without.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    cut.tensors[i].sizes.back() -= 1;
    for (const GgufBytes* changed : {&without, &cut}) {
      write(path, changed->str());
      const std::string message = message_of([&] { load(path); }), &name = honest.tensors[i].name;
      refused += message.empty() ? 0 : 1;
      for (const char* const other : {"model.", "layers.", "lm_head", "encoder.layer", "embeddings."}) {
        EXPECT_EQ(message.find(other), std::string::npos) << name << ": " << message;
      }
      const bool in_layer = !message.empty() && name.starts_with("blk.");
      if (in_layer && name.find("ffn_up") == std::string::npos) {  // which may hold the gate, too
        EXPECT_NE(message.find(name), std::string::npos) << name << ": " << message;
      }
    }
  }
  EXPECT_GT(refused, honest.tensors.size());
}

TEST(TensorNames, OfGgufFilesStandInMessages) {
  for (const char* const name : {"llama", "gemma3", "olmo2", "phi3", "minicpm3", "qwen35", "qwen2"}) {
    SCOPED_TRACE(name);
    expect_own_names(kData / "gguf" / (std::string(name) + ".gguf"), [](const auto& p) { load_language_model(p); });
  }
  expect_own_names(kData / "bert" / "model.gguf", [](const auto& p) { load_encoder(p); });
}

// Only who reads a model says what is wrong with its config.json.
TEST(TensorNames, WhatCannotBeReadIsNoEncoder) {
  const Folder folder;
  write(folder / "config.json", "{");
  fs::resize_file(folder / "config.json", std::uintmax_t{1} << 43);  // without blocks on the disk
  EXPECT_FALSE(is_encoder(folder));
}

}  // namespace
}  // namespace attn::test
