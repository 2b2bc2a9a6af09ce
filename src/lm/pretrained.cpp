// A model's files: Hugging Face folders, single safetensors files, and GGUF.
#include "attn/pretrained.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "io/json_object.hpp"
#include "io/passed_over.hpp"
#include "io/safetensors_file.hpp"
#include "lm/gguf_model.hpp"
#include "lm/stored_tensors.hpp"

namespace attn {
namespace {

namespace fs = std::filesystem;
using Json = io::JsonObject::Json;

constexpr const char* kOp = "load_language_model";
constexpr const char* kConfigMetadata = "config";
constexpr std::size_t kMostJson = std::size_t{64} << 20;

std::string text_of(const fs::path& path) {
  return std::string(io::as_text(io::read_file(path, kOp, kMostJson).bytes()));
}

// A tensor that is asked for is of a floating dtype; buffers that nobody reads may be of any.
StoredTensor stored(const std::shared_ptr<const io::SafetensorsFile>& file, const io::SafetensorsEntry& entry,
                    const fs::path& path) {
  const auto load = [file, entry, path](DType dtype) {
    if (!is_floating(entry.dtype)) {
      io::Origin{kOp, io::source_name(path)}.fail(entry.name + " of a floating dtype", name(entry.dtype));
    }
    return file->load(entry).to(dtype);
  };
  return {entry.name, std::string(io::safetensors_name(entry.dtype)), entry.extent.shape, entry.extent.bytes, load};
}

// Every tensor of one file, or those that the index says are in it.
void add_shard(std::vector<StoredTensor>& tensors, const fs::path& path, const std::set<std::string>* wanted) {
  const auto file = std::make_shared<const io::SafetensorsFile>(path);
  std::size_t found = 0;
  for (const io::SafetensorsEntry& entry : file->entries()) {
    if (wanted && !wanted->contains(entry.name)) continue;
    tensors.push_back(stored(file, entry, path));
    ++found;
  }
  if (!wanted || found == wanted->size()) return;
  for (const std::string& name : *wanted) {
    const bool there = std::ranges::any_of(file->entries(), [&](const auto& entry) { return entry.name == name; });
    if (!there) io::Origin{kOp, io::source_name(path)}.fail("the tensor " + name + ", as the index says", "none");
  }
}

// model.safetensors.index.json: which shard holds which tensor.
std::map<std::string, std::set<std::string>> shards_of(const fs::path& path) {
  const std::string source = io::source_name(path);
  const io::Origin origin{kOp, source};
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
  const io::Origin origin{kOp, source};
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

// GPT-2's files come with the prefix and without it.
void drop_prefix(std::vector<StoredTensor>& tensors) {
  constexpr std::string_view prefix = "transformer.";
  for (StoredTensor& tensor : tensors) {
    if (tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
  }
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const fs::path& folder) {
  std::vector<StoredTensor> tensors;
  const fs::path one = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(index) && !fs::exists(one)) {
    for (const auto& [shard, names] : shards_of(index)) add_shard(tensors, folder / shard, &names);
  } else {
    add_shard(tensors, one, nullptr);
  }
  return tensors;
}

namespace {

PretrainedFiles open_folder(const fs::path& folder) {
  PretrainedFiles files;
  files.format = "safetensors";
  files.config = parse_language_model_config(text_of(folder / "config.json"), io::source_name(folder / "config.json"));
  take_end_ids(files.config, folder / "generation_config.json");
  files.tensors = stored_tensors(folder);
  if (files.config.family == "gpt2") drop_prefix(files.tensors);
  return files;
}

// A file that may be moved alone has its config in its metadata. Without one it is config.json's beside it.
PretrainedFiles open_file(const fs::path& path) {
  const std::map<std::string, std::string> metadata = io::SafetensorsFile(path).metadata();
  const auto own = metadata.find(kConfigMetadata);
  const fs::path beside = path.parent_path() / "config.json";
  PretrainedFiles files;
  files.format = "safetensors";
  files.config = own == metadata.end()
                     ? parse_language_model_config(text_of(beside), io::source_name(beside))
                     : parse_language_model_config(own->second, "the metadata of " + io::source_name(path));
  add_shard(files.tensors, path, nullptr);
  if (files.config.family == "gpt2") drop_prefix(files.tensors);
  return files;
}

}  // namespace

PretrainedFiles open_pretrained(const fs::path& path) {
  if (!fs::is_directory(path)) return io::is_gguf(path) ? open_gguf_model(path) : open_file(path);
  const fs::path weights = path / "model.safetensors";
  const bool alone = !fs::exists(path / "config.json") && fs::exists(weights);
  return alone ? open_file(weights) : open_folder(path);
}

}  // namespace attn
