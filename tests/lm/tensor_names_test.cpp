// Tensors by the names that files have for them: of base models, and of the first BERTs.
#include <functional>

#include "attn/encoder.hpp"
#include "core/folder.hpp"
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

}  // namespace
}  // namespace attn::test
