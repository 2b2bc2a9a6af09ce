// A model's files by their path: Hugging Face folders, and single files with what lies beside them.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/pretrained.hpp"
#include "io/json_object.hpp"
#include "io/passed_over.hpp"
#include "io/safetensors_file.hpp"
#include "lm/gguf_model.hpp"
#include "lm/stored_tensors.hpp"

namespace attn {
namespace {

namespace fs = std::filesystem;
using Json = io::JsonObject::Json;

constexpr std::size_t kMostJson = std::size_t{64} << 20;

std::string text_of(const fs::path& path) {
  return std::string(io::as_text(io::read_file(path, kLoadModel, kMostJson).bytes()));
}

// model.safetensors.index.json: which shard holds which tensor.
std::map<std::string, std::set<std::string>> shards_of(const fs::path& path) {
  const std::string source = io::source_name(path);
  const io::Origin origin{kLoadModel, source};
  const std::string text = text_of(path);
  const io::JsonObject index(std::string_view(text), origin);
  const Json* map = index.find("weight_map");
  if (!map || !map->is_object()) origin.fail("an object weight_map", "none");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : std::string();
    if (name.empty() || fs::path(name).filename() != name || name == "..") {
      origin.fail("the name of a file beside it", io::in_quotes(shard.dump()));
    }
    shards[name].insert(tensor);
  }
  return shards;
}

// Where generation_config.json says which ids end a text, config.json's do not count, as for transformers.
void take_end_ids(LanguageModelConfig& config, const fs::path& path) {
  if (!fs::exists(path)) return;
  const std::string source = io::source_name(path);
  const io::Origin origin{kLoadModel, source};
  const std::string text = text_of(path);
  const io::JsonObject json(std::string_view(text), origin);
  const Json* ids = json.find("eos_token_id");
  json.finish({kGenerationPassedOver});
  if (!ids) return;
  config.end_ids.clear();
  for (const Json& id : ids->is_array() ? *ids : Json::array({*ids})) {
    if (!id.is_number_unsigned()) json.wrong("eos_token_id", "an id, or a list of them", *ids);
    config.end_ids.push_back(id.get<std::int64_t>());
  }
}

void no_adapter(const fs::path& folder) {
  if (!fs::exists(folder / "adapter_config.json")) return;
  throw Error(Error::Kind::data, kLoadModel, "a model without an adapter in " + io::source_name(folder),
              "adapter_config.json", "merge the adapter into the weights, as peft's merge_and_unload() does");
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const fs::path& folder) {
  no_adapter(folder);
  std::vector<StoredTensor> tensors;
  const fs::path one = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(index) && !fs::exists(one)) {
    for (const auto& [shard, names] : shards_of(index)) {
      add_shard(tensors, std::make_shared<const io::SafetensorsFile>(folder / shard), names);
    }
  } else {
    for (const char* const pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"}) {
      if (fs::exists(one) || !fs::exists(folder / pickled)) continue;
      io::Origin{kLoadModel, io::source_name(folder)}.fail(
          "model.safetensors", pickled,
          "such files can hold any program; let transformers' save_pretrained() write the model as safetensors");
    }
    add_shard(tensors, std::make_shared<const io::SafetensorsFile>(one));
  }
  return tensors;
}

namespace {

// Reads what a folder says of its model, whichever of its files hold the weights.
LanguageModelConfig config_in(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  LanguageModelConfig config = parse_language_model_config(text_of(path), io::source_name(path));
  take_end_ids(config, folder / "generation_config.json");
  return config;
}

PretrainedFiles open_folder(const fs::path& folder) {
  LanguageModelConfig config = config_in(folder);
  return with_tensors(std::move(config), stored_tensors(folder));
}

PretrainedFiles open_gguf(const fs::path& path) {
  return open_gguf_model(std::make_shared<const io::Gguf>(io::Gguf::open(path)), io::source_name(path));
}

LanguageModelConfig config_beside(const fs::path& path) {
  const fs::path folder = path.parent_path();
  if (fs::exists(folder / "config.json")) {
    no_adapter(folder);
    return config_in(folder);
  }
  throw Error(Error::Kind::file, kLoadModel,
              "a config in the metadata of " + io::source_name(path) + ", or a config.json beside it", "none",
              path.string().ends_with(".training.safetensors")
                  ? "a checkpoint is for attn train --resume; the model is the file without .training"
                  : "name the folder of the model, or a file that attn train wrote");
}

// A safetensors file begins with the length of its header, which is JSON.
void require_safetensors(const fs::path& path) {
  const io::RandomAccessFile file(path, kLoadModel);
  std::array<std::byte, 9> start{};
  if (file.size() < start.size()) return;  // its own error says where it ends
  file.read(0, start);
  if (start.back() == std::byte{'{'}) return;
  throw Error(Error::Kind::file, kLoadModel, "a model: a folder, a safetensors or a GGUF file",
              "something else in " + io::source_name(path));
}

// A file that may be moved alone has its config in its metadata. Without one it is config.json's beside it.
PretrainedFiles open_file(const fs::path& path) {
  require_safetensors(path);
  return open_one(std::make_shared<const io::SafetensorsFile>(path), [&] { return config_beside(path); });
}

}  // namespace

PretrainedFiles open_pretrained(const fs::path& path) {
  if (!fs::is_directory(path)) return io::is_gguf(path) ? open_gguf(path) : open_file(path);
  const fs::path weights = path / "model.safetensors";
  const bool alone = !fs::exists(path / "config.json") && fs::exists(weights);
  return alone ? open_file(weights) : open_folder(path);
}

std::optional<DType> usual_weights(const fs::path& path) {
  return io::is_gguf(path) ? std::nullopt : std::optional(DType::f32);
}

}  // namespace attn
