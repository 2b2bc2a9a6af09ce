// A well-formed small model of tests/lm/data, a folder or a GGUF file, in which the bytes change some things:
// values of its config or metadata, names, shapes, dtypes and places of tensors, the index, any byte. A model that is
// loaded computes, with a cache and without, and can be saved and loaded again.
#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "attn/pretrained.hpp"
#include "bytes.hpp"
#include "folder.hpp"
#include "lm/gguf_bytes.hpp"

namespace {

namespace fs = std::filesystem;
using attn::fuzz::Bytes;
using attn::test::GgufBytes;
using Json = nlohmann::ordered_json;
using Files = std::map<std::string, std::string>;  // a model's, by their names

const fs::path kModels = ATTN_FUZZ_MODELS;
constexpr int kMostChanges = 8;

constexpr std::array kGguf{"llama",   "llama3", "qwen2", "qwen3", "gemma2", "gemma3",
                           "smollm3", "olmo2",  "olmo3", "phi3",  "granite"};
constexpr std::array kFolders{"llama",   "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text",
                              "smollm3", "olmo2",   "olmo3", "phi3",  "granite"};

// Keys that a config or a GGUF file may have.
constexpr std::array kConfigKeys{"head_dim",
                                 "num_key_value_heads",
                                 "sliding_window",
                                 "use_sliding_window",
                                 "max_window_layers",
                                 "layer_types",
                                 "sliding_window_pattern",
                                 "no_rope_layers",
                                 "no_rope_layer_interval",
                                 "rope_theta",
                                 "rope_scaling",
                                 "rope_local_base_freq",
                                 "partial_rotary_factor",
                                 "original_max_position_embeddings",
                                 "eos_token_id",
                                 "tie_word_embeddings",
                                 "attention_bias",
                                 "mlp_bias",
                                 "hidden_act",
                                 "rms_norm_eps",
                                 "query_pre_attn_scalar",
                                 "attn_logit_softcapping",
                                 "final_logit_softcapping",
                                 "embedding_multiplier",
                                 "logits_scaling",
                                 "quantization_config"};
constexpr std::array kGgufKeys{"general.architecture",
                               "general.alignment",
                               "attention.key_length",
                               "attention.head_count_kv",
                               "attention.sliding_window",
                               "attn_logit_softcapping",
                               "final_logit_softcapping",
                               "embedding_scale",
                               "logit_scale",
                               "rope.freq_base",
                               "rope.dimension_count",
                               "rope.scaling.type",
                               "rope.scaling.factor",
                               "rope.scaling.attn_factor",
                               "rope.scaling.original_context_length",
                               "tokenizer.ggml.eos_token_id"};
constexpr std::array kDtypes{"F32", "F16", "BF16", "F64", "I64", "I8", "BOOL", "F8_E4M3"};

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

template <class List>
auto& one_of(List& list, Bytes& bytes) {
  return list[static_cast<std::size_t>(bytes.number(0, std::ssize(list) - 1))];
}

std::int64_t whole(Bytes& bytes) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  switch (bytes.number(0, 7)) {
    case 0:
      return bytes.one_of<std::int64_t>({0, -1, most, -most - 1});
    case 1:
      return std::int64_t{1} << bytes.number(0, 62);
    case 2:
      return static_cast<std::int64_t>(bytes.word());
    case 3:
      return -bytes.number(0, 999);
    default:
      return bytes.number(0, 99);
  }
}

double floating(Bytes& bytes) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (bytes.yes()) return static_cast<double>(whole(bytes)) / static_cast<double>(bytes.number(1, 100));
  return bytes.one_of({0.0, -1.0, 0.5, 1e-300, 1e300, 1e38, 1e-40, infinity, infinity - infinity});
}

// ---- folders -----------------------------------------------------------------------------------

Json json_value(Bytes& bytes, int depth = 0) {
  switch (bytes.number(0, depth < 2 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return bytes.yes();
    case 2:
      return floating(bytes);
    case 3:
      return std::string(bytes.text());
    case 4:
      return bytes.one_of({"default", "linear", "dynamic", "yarn", "llama3", "longrope", "full_attention",
                           "sliding_attention", "silu", "gelu", "gelu_pytorch_tanh", "llama", "phi3", "gemma3_text"});
    case 7: {
      Json list = Json::array();
      for (auto count = bytes.number(0, 5); count > 0; --count) list.push_back(json_value(bytes, depth + 1));
      return list;
    }
    case 8: {
      Json object = Json::object();
      for (const char* key : {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "short_factor",
                              "long_factor", "low_freq_factor", "high_freq_factor", "full_attention"}) {
        if (bytes.yes()) object[key] = json_value(bytes, depth + 1);
      }
      return object;
    }
    default:
      return whole(bytes);
  }
}

// One value of an object, wherever it lies, gets another value or name, or goes; `keys` may be added.
template <class Keys>
void change(Json& json, Bytes& bytes, const Keys& keys) {
  const Json flat = json.flatten();
  std::vector<std::string> places;
  for (const auto& [place, value] : flat.items()) places.push_back(place);
  if (bytes.number(0, 3) == 0 || places.empty()) {
    json[one_of(keys, bytes)] = json_value(bytes);
    return;
  }
  const Json::json_pointer place(one_of(places, bytes));
  Json& parent = json.at(place.parent_pointer());
  switch (bytes.number(0, 3)) {
    case 0:
      if (parent.is_object()) parent.erase(place.back());
      break;
    case 1: {
      if (!parent.is_object()) break;
      const Json value = json.at(place);
      parent.erase(place.back());
      parent[std::string(bytes.text())] = value;
      break;
    }
    default:
      json[place] = json_value(bytes);
  }
}

// Changes a value in the header of a .safetensors file, under a length that is right.
void change_header(std::string& file, Bytes& bytes) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) return;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - sizeof length) return;
  Json header = Json::parse(file.substr(sizeof length, length), nullptr, false);
  if (!header.is_object() || header.empty()) return;
  const std::string data = file.substr(sizeof length + length);
  if (bytes.yes()) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : header.items()) names.push_back(name);
    Json& tensor = header[one_of(names, bytes)];
    if (tensor.is_object()) tensor["dtype"] = one_of(kDtypes, bytes);
  } else {
    change(header, bytes, std::array{"__metadata__", "model.norm.weight", "lm_head.weight"});
  }
  const std::string text = dump(header);
  length = text.size();
  file.assign(reinterpret_cast<const char*>(&length), sizeof length);
  file += text + data;
}

void change_json(std::string& file, Bytes& bytes) {
  Json json = Json::parse(file, nullptr, false);
  if (!json.is_object()) return;
  change(json, bytes, kConfigKeys);
  file = dump(json);
}

// A file's bytes, or the file itself.
void damage(Files& files, Bytes& bytes) {
  if (files.empty()) return;
  const auto file = std::next(files.begin(), bytes.number(0, std::ssize(files) - 1));
  const auto at = static_cast<std::size_t>(bytes.word() % (file->second.size() + 1));
  switch (bytes.number(0, 4)) {
    case 0:
      files.erase(file);
      break;
    case 1:
      file->second.resize(at);
      break;
    case 2:
      files["generation_config.json"] = std::string(bytes.text());
      break;
    default:
      if (at < file->second.size()) file->second[at] = static_cast<char>(bytes.byte());
  }
}

Files changed_folder(Files files, Bytes& bytes) {
  for (int i = 0; i < kMostChanges && !bytes.empty(); ++i) {
    if (const auto what = bytes.number(0, 7); what == 0) {
      damage(files, bytes);
    } else if (what == 1 && files.contains("model.safetensors.index.json")) {
      change_json(files["model.safetensors.index.json"], bytes);
    } else if (what <= 3 && !files.empty()) {
      const auto file = std::next(files.begin(), bytes.number(0, std::ssize(files) - 1));
      if (file->first.ends_with(".safetensors")) change_header(file->second, bytes);
    } else {
      change_json(files["config.json"], bytes);
    }
  }
  return files;
}

// ---- GGUF --------------------------------------------------------------------------------------

attn::io::GgufValue gguf_value(Bytes& bytes) {
  switch (bytes.number(0, 7)) {
    case 0:
      return bytes.yes();
    case 1:
      return std::string(bytes.text());
    case 2:
      return std::string(bytes.one_of({"linear", "yarn", "none", "longrope", "llama", "phi3", "gemma3", "granite"}));
    case 3:
    case 4:
      return floating(bytes);
    case 5:
      return std::vector<std::int64_t>(static_cast<std::size_t>(bytes.number(0, 4)), whole(bytes));
    default:
      return whole(bytes);
  }
}

void change_metadata(GgufBytes& file, Bytes& bytes) {
  const auto at = std::next(file.metadata.begin(), bytes.number(0, std::ssize(file.metadata)));
  if (at == file.metadata.end() || bytes.number(0, 3) == 0) {
    const std::string prefix = bytes.yes() ? one_of(kGguf, bytes) + std::string(".") : "";
    file.metadata[prefix + one_of(kGgufKeys, bytes)] = gguf_value(bytes);
  } else if (const auto what = bytes.number(0, 7); what == 0) {
    file.metadata.erase(at);
  } else if (what == 1) {
    auto moved = file.metadata.extract(at);
    moved.key() = bytes.text();
    file.metadata.insert(std::move(moved));
  } else {
    at->second = gguf_value(bytes);
  }
}

void change_tensor(GgufBytes& file, Bytes& bytes) {
  GgufBytes::Entry& own = one_of(file.tensors, bytes);
  switch (bytes.number(0, 5)) {
    case 0:
      own.type = static_cast<std::uint32_t>(bytes.number(0, 31));
      break;
    case 1:
      own.begin = static_cast<std::uint64_t>(whole(bytes));
      break;
    case 2:
      own.sizes.resize(static_cast<std::size_t>(bytes.number(0, 5)), 1);
      break;
    case 3:
      own.name = bytes.yes() ? one_of(file.tensors, bytes).name : std::string(bytes.text());
      break;
    default:
      if (!own.sizes.empty()) one_of(own.sizes, bytes) = static_cast<std::uint64_t>(whole(bytes));
  }
}

Files changed_gguf(GgufBytes file, Bytes& bytes) {
  int changes = 0;
  for (; changes < kMostChanges && !bytes.empty() && bytes.number(0, 7) > 0; ++changes) {
    if (bytes.number(0, 2) == 0) {
      change_tensor(file, bytes);
    } else {
      change_metadata(file, bytes);
    }
  }
  Files files{{"model.gguf", file.str()}};
  while (++changes < kMostChanges && !bytes.empty()) damage(files, bytes);
  return files;
}

// ---- what is done with them --------------------------------------------------------------------

void compute(attn::LanguageModel& model, Bytes& bytes) {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 5; ++i)
    ids.push_back(bytes.number(0, std::min<std::int64_t>(model.config().vocab_size, 999) - 1));
  if (!model.embedding.scales.defined()) {
    model.forward(attn::Tensor::from(std::span<const std::int64_t>(ids), {1, 5}));
  }
  const std::vector<std::vector<std::int64_t>> prompts{ids, {ids[0]}};
  attn::generate(model, prompts, {.tokens = bytes.number(0, 8)}, 1);
}

void load(const fs::path& path, Bytes& bytes) {
  attn::LanguageModel model =
      attn::load_language_model(path, bytes.one_of({attn::DType::f32, attn::DType::bf16, attn::DType::i8}));
  try {
    compute(model, bytes);
  } catch (const attn::Error&) {  // of a context that is too short, and of frequencies
  }
  if (model.embedding.scales.defined() || !bytes.yes()) return;
  static const attn::fuzz::Folder saved;
  attn::save_language_model(saved.path(), model);
  try {
    attn::load_language_model(saved.path());
  } catch (const attn::Error&) {
    std::abort();  // what was taken and written is taken again
  }
}

// The committed models, and the index that joins a folder's shards.
std::vector<Files> read_folders() {
  std::vector<Files> all;
  for (const char* name : kFolders) {
    Files& files = all.emplace_back();
    for (const auto& entry : fs::directory_iterator(kModels / name)) {
      const std::string file = entry.path().filename();
      if (file != "golden.safetensors") files[file] = content(entry.path());
    }
  }
  return all;
}

std::vector<GgufBytes> read_gguf() {
  std::vector<GgufBytes> all;
  for (const char* name : kGguf) all.emplace_back(content(kModels / "gguf" / (std::string(name) + ".gguf")));
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Files> folders = read_folders();
  static const std::vector<GgufBytes> ggufs = read_gguf();
  static const attn::fuzz::Folder folder;
  Bytes bytes(data, size);
  const bool gguf = bytes.yes();
  const auto kept = bytes.take(8);
  Bytes use(kept.data(), kept.size());  // of what is loaded
  const Files files = gguf ? changed_gguf(one_of(ggufs, bytes), bytes) : changed_folder(one_of(folders, bytes), bytes);
  folder.clear();
  for (const auto& [name, text] : files) folder.write(name, text);
  try {
    load(gguf ? folder.path() / "model.gguf" : folder.path(), use);
  } catch (const attn::Error&) {
  }
  return 0;
}
