#include "common/live_model.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/train.hpp"
#include "common/format.hpp"
#include "io/file.hpp"
#include "io/safetensors_header.hpp"
#include "io/writers.hpp"
#include "lm/stored_tensors.hpp"
#include "text/readers.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMost = 300'000'000;  // what a browser opens

std::string read(const fs::path& path, std::string_view who) {
  const io::Buffer buffer = io::read_file(path, who, kMost);
  return std::string(io::as_text(buffer.bytes()));
}

std::string read_if_there(const fs::path& path, std::string_view who) {
  return fs::exists(path) ? read(path, who) : std::string();
}

fs::path file_of(const fs::path& path) { return fs::is_directory(path) ? path / "model.safetensors" : path; }

[[noreturn]] void not_live(std::string_view who, std::string_view expected, const std::string& found) {
  throw Error(Error::Kind::argument, who, expected, found, formatted("leave {} out", who));
}

[[noreturn]] void not_kept(std::string_view who, const std::string& expected, const std::string& found,
                           std::string_view mend) {
  throw Error(Error::Kind::argument, who, expected, found, mend);
}

io::SafetensorsHeader header_of(std::string_view file, const io::Origin& origin) {
  const io::Bytes bytes = std::as_bytes(std::span(file));
  if (bytes.size() < io::kSafetensorsLengthBytes) origin.fail("a safetensors file", "a shorter one");
  const std::uint64_t length = io::safetensors_header_length(bytes, bytes.size(), origin);
  io::SafetensorsHeader header = io::parse_safetensors_header(file.substr(io::kSafetensorsLengthBytes, length), origin);
  io::check_safetensors_layout(header, bytes.size() - io::kSafetensorsLengthBytes - length, origin);
  return header;
}

bool is_matrix(const io::SafetensorsEntry& entry) {
  return entry.dtype == DType::f32 && entry.extent.shape.size() == 2;
}

// A row of float32 numbers as a scale, the 127th part of the largest, and int8.
void append_row(std::string& to, const float* row, std::int64_t columns) {
  constexpr float steps = 127;
  float largest = 0;
  for (std::int64_t j = 0; j < columns; ++j) largest = std::max(largest, std::abs(row[j]));
  const float scale = largest / steps;
  to.append(reinterpret_cast<const char*>(&scale), sizeof scale);
  for (std::int64_t j = 0; j < columns; ++j)
    to.push_back(static_cast<char>(scale > 0 ? std::lround(row[j] / scale) : 0));
}

// A safetensors file in which each row of a float32 matrix is that; all else is as it was, the header, too.
std::string in_bytes(const std::string& file, const io::SafetensorsHeader& header) {
  const std::size_t data = file.size() - header.entries.back().end;
  std::string all = file.substr(0, data);
  for (const io::SafetensorsEntry& entry : header.entries) {
    const std::string own = file.substr(data + entry.begin, entry.end - entry.begin);
    if (!is_matrix(entry)) {
      all.append(own);
      continue;
    }
    const Tensor numbers = Tensor::empty({entry.extent.shape[0], entry.extent.shape[1]});
    std::memcpy(numbers.raw(), own.data(), own.size());
    for (std::int64_t row = 0; row < numbers.size(0); ++row)
      append_row(all, numbers.data<float>() + row * numbers.size(1), numbers.size(1));
  }
  return all;
}

// By name, where each tensor is: that of models of one run is the same.
std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> places(const io::SafetensorsHeader& header) {
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> all;
  for (const io::SafetensorsEntry& entry : header.entries) all[entry.name] = {entry.begin, entry.end};
  return all;
}

// The shards of a folder as one file.
std::string joined_shards(const fs::path& folder, std::string_view who) {
  io::NamedTensors all;
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : stored_tensors(folder)) {
    bytes += tensor.bytes;
    if (bytes > kMost) not_live(who, "a model of at most 300 MB", "a larger one in " + io::source_name(folder));
    const DType dtype = tensor.dtype == "BF16" ? DType::bf16 : tensor.dtype == "F16" ? DType::f16 : DType::f32;
    all.tensors.emplace_back(tensor.name, tensor.load(dtype));
  }
  return io::safetensors_bytes(all);
}

// tokenizer_config.json, with what the older special_tokens_map.json says beside it.
std::string tokenizer_config(const fs::path& folder, std::string_view who) {
  const fs::path file = folder / "tokenizer_config.json", map = folder / "special_tokens_map.json";
  const std::string config = read_if_there(file, who), source = io::source_name(file),
                    map_source = io::source_name(map);
  if (!fs::exists(map)) return config;
  return text::with_special_tokens(config.empty() ? "{}" : config, {who, source}, read(map, who), {who, map_source});
}

}  // namespace

void add_kept(const fs::path& path, LiveModel& model, std::string_view who) {
  constexpr std::size_t exact = 10'000'000, most = 100'000'000;
  std::size_t bytes = model.weights.size();
  for (const KeptModel& kept : kept_models(path)) model.kept.push_back({kept.step, read(kept.path, who)});
  if (model.kept.empty()) {
    not_kept(who, "models that a run has kept, such as " + kept_model(path, 500).string(), "none",
             "attn train --keep-every N keeps them");
  }
  const auto expected = places(header_of(read(file_of(path), who), {who, io::source_name(path)}));
  for (const LiveModel::Kept& kept : model.kept) bytes += kept.weights.size();
  model.kept_in_bytes = bytes > exact;
  bytes = 0;
  for (LiveModel::Kept& kept : model.kept) {
    const std::string name = io::source_name(kept_model(path, kept.step));
    const io::SafetensorsHeader header = header_of(kept.weights, {who, name});
    if (places(header) != expected) {
      not_kept(who, "models of the sizes of the model", name, "another run has kept it");
    }
    if (model.kept_in_bytes) kept.weights = in_bytes(kept.weights, header);
    bytes += kept.weights.size();
  }
  if (bytes > most) {
    not_kept(who, "kept models of at most 100 MB together, in 8 bits", formatted("{} MB", bytes / 1000000),
             "attn train --keep-every keeps fewer of a larger N");
  }
}

LiveModel live_model(const fs::path& path, const std::string& given, std::string_view who) {
  const bool folder = fs::is_directory(path), gguf = !folder && io::is_gguf(path);
  const fs::path weights = file_of(path);
  const bool sharded = folder && !fs::exists(weights);
  if (sharded && !fs::exists(path / "model.safetensors.index.json"))
    not_live(who, "model.safetensors, or the index of its shards", "neither in " + io::source_name(path));
  LiveModel model{.weights = sharded ? joined_shards(path, who) : read(weights, who)};
  constexpr std::size_t exact = 7'500'000;
  model.in_bytes = !gguf && model.weights.size() > exact;
  if (model.in_bytes)
    model.weights = in_bytes(model.weights, header_of(model.weights, {who, io::source_name(weights)}));
  if (gguf && given.empty()) return model;
  if (gguf) not_live(who, "the tokenizer of the GGUF file itself", "another");
  const fs::path beside = folder ? path : path.parent_path(), own = given.empty() ? beside : fs::path(given);
  model.config = read_if_there(beside / "config.json", who);
  if (!fs::is_directory(own.empty() ? fs::path(".") : own)) {
    model.tokenizer = read(own, who);
    return model;
  }
  model.tokenizer = read_if_there(own / "tokenizer.json", who);
  model.tokenizer_config = model.tokenizer.empty() ? std::string() : tokenizer_config(own, who);
  for (const char* name : {"vocab.json", "added_tokens.json"}) {
    if (name == std::string_view("vocab.json") && !model.tokenizer.empty()) continue;
    if (fs::exists(own / name)) not_live(who, "a tokenizer in a tokenizer.json alone", name);
  }
  return model;
}

}  // namespace attn::tool
