// Released models in and out: Hugging Face folders, and what both kinds of files become.
#include "attn/pretrained.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/io.hpp"
#include "io/json_object.hpp"
#include "io/output_file.hpp"
#include "io/passed_over.hpp"
#include "io/safetensors_file.hpp"
#include "io/writers.hpp"
#include "lm/gguf_model.hpp"
#include "ops/stored.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

namespace fs = std::filesystem;
using Json = io::JsonObject::Json;

constexpr const char* kOp = "load_language_model";
constexpr std::size_t kMostJson = std::size_t{64} << 20;

std::string text_of(const fs::path& path) {
  return std::string(io::as_text(io::read_file(path, kOp, kMostJson).bytes()));
}

StoredTensor stored(const std::shared_ptr<const io::SafetensorsFile>& file, const io::SafetensorsEntry& entry,
                    const fs::path& path) {
  if (!is_floating(entry.dtype)) {
    io::Origin{kOp, io::source_name(path)}.fail(entry.name + " of a floating dtype", name(entry.dtype));
  }
  return {entry.name, std::string(io::safetensors_name(entry.dtype)), entry.extent.shape, entry.extent.bytes,
          [file, entry](DType dtype) { return file->load(entry).to(dtype); }};
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

PretrainedFiles open_folder(const fs::path& folder) {
  PretrainedFiles files;
  files.format = "safetensors";
  files.config = parse_language_model_config(text_of(folder / "config.json"), io::source_name(folder / "config.json"));
  take_end_ids(files.config, folder / "generation_config.json");
  const fs::path one = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(index) && !fs::exists(one)) {
    for (const auto& [shard, names] : shards_of(index)) add_shard(files.tensors, folder / shard, &names);
  } else {
    add_shard(files.tensors, one, nullptr);
  }
  return files;
}

// ---- a model's parameters, and the tensors that hold them --------------------------------------

// A tensor of the files: a parameter, or several on top of each other.
struct Entry {
  std::string name;
  std::vector<Parameter*> parts;

  Shape shape() const {
    Shape all = parts[0]->value.shape();
    for (std::size_t i = 1; i < parts.size(); ++i) all[0] += parts[i]->value.size(0);
    return all;
  }
};

// Phi-3's files have the projections of one input in one matrix.
std::string stored_name(std::string name, const std::string& family) {
  if (family != "phi3") return name;
  for (const auto& [part, whole] : {std::pair{"q_proj", "qkv_proj"},
                                    {"k_proj", "qkv_proj"},
                                    {"v_proj", "qkv_proj"},
                                    {"gate_proj", "gate_up_proj"},
                                    {"up_proj", "gate_up_proj"}}) {
    const std::string in_name = std::string(".") + part + ".";
    if (const auto at = name.find(in_name); at != std::string::npos) {
      return name.replace(at, in_name.size(), std::string(".") + whole + ".");
    }
  }
  return name;
}

std::vector<Entry> entries_of(LanguageModel& model) {
  std::vector<Entry> entries;
  for (Parameter* p : model.parameters()) {
    const std::string name = stored_name(p->name, model.config().family);
    if (entries.empty() || entries.back().name != name) entries.push_back({name, {}});
    entries.back().parts.push_back(p);
  }
  return entries;
}

constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";

bool passed_over(std::string_view name, const LanguageModelConfig& config) {
  return name.ends_with("rotary_emb.inv_freq") || (config.tied && name == kHead);
}

using ByName = std::map<std::string_view, const StoredTensor*>;

const StoredTensor& required(const ByName& tensors, const std::string& name, const Shape& shape,
                             const io::Origin& origin) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) origin.fail("a tensor " + name, "none");
  if (!(found->second->shape == shape)) {
    origin.fail(name + " of shape " + shape.str() + ", as the config says", found->second->shape.str());
  }
  return *found->second;
}

// The config's sizes are those of the files, before memory is taken for them.
void check_sizes(const LanguageModelConfig& c, const ByName& tensors, const io::Origin& origin) {
  required(tensors, std::string(kEmbedding), {c.vocab_size, c.width}, origin);
  if (c.layers.size() > tensors.size()) {
    origin.fail("the tensors of " + std::to_string(c.layers.size()) + " layers", std::to_string(tensors.size()));
  }
  required(tensors, "model.layers.0.self_attn.o_proj.weight", {c.width, c.heads * c.head_dim}, origin);
  required(tensors, "model.layers.0.mlp.down_proj.weight", {c.width, c.inner_width}, origin);
}

// As transformers 5 reads tie_word_embeddings: a head that differs from the embedding stays a head of its own, and
// where one of them is there it is both.
void untie(LanguageModelConfig& c, ByName& tensors) {
  const auto embedding = tensors.find(kEmbedding), head = tensors.find(kHead);
  if (!c.tied || head == tensors.end()) return;
  if (embedding == tensors.end()) {
    tensors.emplace(kEmbedding, head->second);
  } else if (embedding->second->shape == head->second->shape) {
    const Tensor a = embedding->second->load(DType::f32), b = head->second->load(DType::f32);
    c.tied = std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>());
  } else {
    c.tied = false;
  }
}

void load(const Entry& entry, const StoredTensor& stored, DType weights) {
  const bool in_bytes = weights == DType::i8;
  const Tensor all = stored.load(stored.shape.size() == 2 && !in_bytes ? weights : DType::f32);
  std::int64_t row = 0;
  for (Parameter* part : entry.parts) {
    const std::int64_t rows = part->value.size(0);
    part->value = entry.parts.size() == 1 ? all : all.slice(0, row, row + rows);
    row += rows;
  }
  if (in_bytes) store_matrices(entry.parts, weights);
}

}  // namespace

PretrainedFiles open_pretrained(const fs::path& path) {
  if (fs::is_directory(path)) return open_folder(path);
  return open_gguf_model(path);
}

bool is_language_model(const fs::path& path) {
  if (!fs::is_directory(path)) return io::is_gguf(path);
  const fs::path config = path / "config.json";
  if (!fs::exists(config)) return false;
  const std::string source = io::source_name(config);
  const std::string text = text_of(config);
  return io::JsonObject(std::string_view(text), {kOp, source}).text("model_type", "gpt2") != "gpt2";
}

LanguageModel load_language_model(const fs::path& path, DType weights, Precision precision) {
  if (weights != DType::f32 && weights != DType::bf16 && weights != DType::i8) {
    throw Error(Error::Kind::dtype, kOp, "weights in float32, bfloat16 or int8", name(weights));
  }
  PretrainedFiles files = open_pretrained(path);
  files.config.precision = precision;
  const std::string source = io::source_name(path);
  const io::Origin origin{kOp, source};
  ByName tensors;
  for (const StoredTensor& tensor : files.tensors) {
    if (!tensors.emplace(tensor.name, &tensor).second) {
      origin.fail("every tensor once", io::in_quotes(tensor.name) + " twice");
    }
  }
  untie(files.config, tensors);
  check_sizes(files.config, tensors, origin);
  LanguageModel model(files.config, false);
  const std::vector<Entry> entries = entries_of(model);
  std::set<std::string_view> known;
  for (const Entry& entry : entries) {
    known.insert(entry.name);
    required(tensors, entry.name, entry.shape(), origin);
  }
  for (const auto& [name, tensor] : tensors) {
    if (!known.contains(name) && !passed_over(name, files.config)) {
      origin.fail(
          "only tensors of a " + files.config.family + " of " + std::to_string(files.config.layers.size()) + " layers",
          io::in_quotes(name));
    }
  }
  for (const Entry& entry : entries) load(entry, *tensors.at(entry.name), weights);
  return model;
}

namespace {

constexpr const char* kSave = "save_language_model";

void remove_old(const fs::path& path) {
  std::error_code failed;
  fs::remove(path, failed);
  if (!failed) return;
  throw Error(Error::Kind::file, kSave, "a folder whose files can be replaced",
              io::in_quotes(path.native()) + " (" + failed.message() + ")");
}

// Old weights go before another config comes, and the new weights come last: no reader finds the weights of one model
// under the config of another.
void save_set(const fs::path& folder, const std::string& config, const io::NamedTensors& tensors) {
  const io::Destination weights_at(folder / "model.safetensors", kSave), config_at(folder / "config.json", kSave);
  io::OutputFile weights(weights_at), text(config_at);
  io::write_safetensors(weights, tensors);
  weights.finish();
  text.write(config);
  text.finish();
  remove_old(folder / "model.safetensors.index.json");  // of older weights in several files
  if (!fs::exists(config_at.path()) || text_of(config_at.path()) != config) remove_old(weights_at.path());
  text.commit();
  weights.commit();
}

}  // namespace

void save_language_model(const fs::path& folder, LanguageModel& model) {
  if (model.config().json.empty()) {
    throw Error(Error::Kind::argument, kSave, "a model that was made of a config.json", "one without");
  }
  if (model.embedding.scales.defined()) {
    throw Error(Error::Kind::dtype, kSave, "weights in float32 or bfloat16", "int8", "save the model that was loaded");
  }
  auto config = nlohmann::ordered_json::parse(model.config().json);
  config.erase("torch_dtype");
  config["dtype"] = model.embedding.value.dtype() == DType::bf16 ? "bfloat16" : "float32";
  io::NamedTensors file;
  file.metadata.emplace("format", "pt");  // from_pretrained() asks for it
  for (const Entry& entry : entries_of(model)) {
    std::vector<Tensor> columns;
    for (const Parameter* part : entry.parts) require_present(*part), columns.push_back(part->value);
    for (Tensor& part : columns) part = columns.size() > 1 ? part.transpose(0, 1) : part;
    file.tensors.emplace_back(entry.name, columns.size() > 1 ? concat_last(columns).transpose(0, 1) : columns[0]);
  }
  save_set(folder, config.dump(2) + "\n", file);
}

}  // namespace attn
