// attn info: this build on this machine, or what a file holds.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "attn/version.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"
#include "common/json.hpp"
#include "common/processor.hpp"
#include "common/table.hpp"
#include "common/terminal.hpp"
#include "common/text_model.hpp"
#include "core/escape.hpp"
#include "report/figure/text.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "gcc " __VERSION__;
#else
constexpr const char* kCompiler = "unknown";
#endif

std::string or_else(const std::string& text, const char* otherwise) { return text.empty() ? otherwise : text; }

// ---- the build and the machine --------------------------------------------------------

Json build_report() {
  const Processor processor = this_processor();
  Json json;
  json["version"] = ATTN_VERSION;
  json["compiler"] = kCompiler;
  json["build"] = ATTN_BUILD_TYPE;
  json["sanitizers"] = ATTN_SANITIZERS;
  json["processor"] = processor.name;
  json["features"] = Json::object();
  for (const auto& [feature, there] : processor.features) json["features"][feature] = there;
  json["threads"] = processor.threads;
  json["dependencies"] = {{"libzip", or_else(ATTN_LIBZIP_VERSION, "none")},
                          {"nlohmann_json", formatted("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)}};
  return json;
}

std::string build_text(const Json& json) {
  constexpr std::size_t indent = 14;
  std::vector<std::string> features, dependencies;
  for (const auto& [name, there] : json["features"].items()) {
    if (there.get<bool>()) features.push_back(name);
  }
  for (const auto& [name, version] : json["dependencies"].items()) {
    dependencies.push_back(name + " " + version.get<std::string>() + ",");
  }
  dependencies.back().pop_back();
  const auto of = [&](const char* key) { return json[key].get<std::string>(); };
  return formatted(
      "attn          {}\ncompiler      {}\nbuild         {}\nsanitizers    {}\nprocessor     {}\nfeatures      {}\n"
      "threads       {}\ndependencies  {}\n",
      of("version"), of("compiler"), or_else(of("build"), "without a type"), or_else(of("sanitizers"), "none"),
      or_else(escaped(of("processor")), "unknown"), or_else(wrapped(features, text_columns(), indent), "none known"),
      json["threads"].get<unsigned>(), wrapped(dependencies, text_columns(), indent));
}

// ---- a file ---------------------------------------------------------------------------

struct Summary {
  double min = std::numeric_limits<double>::infinity(), max = -min, mean = 0;
  std::int64_t finite = 0;
  Counts counts;
};

// Summarises the finite elements, and counts the others.
Summary summarise(const Tensor& tensor) {
  Summary s;
  if (tensor.numel() == 0) return s;
  const Tensor flat = tensor.contiguous().view({tensor.numel()});
  constexpr std::int64_t piece = 1 << 16;  // no float64 copy of the whole
  double sum = 0;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += piece) {
    for (const double value : values_of(flat.slice(0, begin, std::min(begin + piece, flat.numel())))) {
      s.counts.nan += std::isnan(value);
      s.counts.inf += std::isinf(value);
      if (!std::isfinite(value)) continue;
      s.min = std::min(s.min, value);
      s.max = std::max(s.max, value);
      sum += value;
      ++s.finite;
    }
  }
  if (s.finite > 0) s.mean = sum / static_cast<double>(s.finite);
  return s;
}

// In the order of io::Format, as files' names end.
constexpr std::array<std::string_view, 5> kFormats{"npy", "npz", "safetensors", "csv", "gguf"};

std::string_view format_name(io::Format format) { return kFormats[static_cast<std::size_t>(format)]; }

// As the file has it.
Json tensor_report(const std::string& tensor_name, std::string_view dtype, std::uint64_t bytes, const Shape& shape) {
  return {{"name", tensor_name}, {"dtype", dtype}, {"shape", json_shape(shape)}, {"bytes", bytes}};
}

void add_stats(Json& report, const Tensor& tensor) {
  const Summary s = summarise(tensor);
  const auto number = [&](double value) { return s.finite > 0 ? json_number(value) : Json(nullptr); };
  report["min"] = number(s.min);
  report["max"] = number(s.max);
  report["mean"] = number(s.mean);
  report["nan"] = s.counts.nan;
  report["inf"] = s.counts.inf;
}

// Tensors of a large model are read only when --stats asks for it.
bool reads_tensors(std::uint64_t bytes, bool stats) {
  constexpr std::uint64_t large = 256'000'000;
  return stats || bytes <= large;
}

template <class Tensors>
std::uint64_t bytes_of(const Tensors& tensors) {
  std::uint64_t bytes = 0;
  for (const auto& t : tensors) bytes += t.bytes;
  return bytes;
}

Json file_report(const std::string& path, io::Format format, Json tensors, Json metadata) {
  Json json;
  json["file"] = path;
  json["format"] = format_name(format);
  json["tensors"] = std::move(tensors);
  json["metadata"] = std::move(metadata);
  return json;
}

// How many bytes a file has behind its last tensor, of which nothing is read; 0 where it is padding.
std::uint64_t bytes_behind(const io::Gguf& file, const std::string& path) {
  std::uint64_t end = 0;
  for (const io::GgufTensor& t : file.tensors()) end = std::max(end, t.part == 0 ? t.begin + t.bytes : 0);
  const auto given = file.metadata().find("general.alignment");
  const auto* const alignment = given == file.metadata().end() ? nullptr : std::get_if<std::int64_t>(&given->second);
  const std::uint64_t step = alignment ? static_cast<std::uint64_t>(*alignment) : 32;  // the format's default
  std::error_code unknown;
  const std::uint64_t size = std::filesystem::file_size(path, unknown);
  return end == 0 || unknown || size <= (end + step - 1) / step * step ? 0 : size - end;
}

// A model is larger than its quantized file: one tensor of it at a time.
Json gguf_report(const std::string& path, bool stats) {
  const io::Gguf file = io::Gguf::open(path);
  Json tensors = Json::array(), metadata = Json::object();
  const bool reads = reads_tensors(bytes_of(file.tensors()), stats);
  for (const io::GgufTensor& t : file.tensors()) {
    tensors.push_back(tensor_report(t.name, io::name(t.type), t.bytes, t.shape));
    if (reads) add_stats(tensors.back(), file.load(t));
  }
  auto& members = metadata.get_ref<Json::object_t&>();  // whose [] would look through all of them
  for (const auto& [key, value] : file.metadata()) members.push_back({key, io::text_of(value)});
  Json json = file_report(path, io::Format::gguf, std::move(tensors), std::move(metadata));
  if (const std::uint64_t behind = bytes_behind(file, path); behind > 0) json["bytes_behind_tensors"] = behind;
  return json;
}

// A model as its config.json describes it.
Json model_report(const LanguageModelConfig& c, const std::vector<StoredTensor>& tensors) {
  std::int64_t parameters = 0, windows = 0;
  for (const StoredTensor& tensor : tensors) parameters += tensor.shape.numel();
  for (const LayerConfig& layer : c.layers) windows += layer.window > 0;
  return {{"family", c.family},
          {"parameters", parameters},
          {"layers", c.layers.size()},
          {"layers_with_a_window", windows},
          {"width", c.width},
          {"inner_width", c.inner_width},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"vocab_size", c.vocab_size},
          {"tied", c.tied},
          {"context_length", c.context_length}};
}

Json folder_report(const std::string& path, bool stats) {
  const PretrainedFiles files = open_pretrained(path);
  Json tensors = Json::array();
  const bool reads = reads_tensors(bytes_of(files.tensors), stats);
  for (const StoredTensor& t : files.tensors) {
    tensors.push_back(tensor_report(t.name, t.dtype, t.bytes, t.shape));
    if (reads) add_stats(tensors.back(), t.load(DType::f32));
  }
  Json json = file_report(path, io::Format::safetensors, std::move(tensors), Json::object());
  json["model"] = model_report(files.config, files.tensors);
  return json;
}

// Says what a GGUF file is a model of, where its architecture is one that runs here.
Json gguf_model_report(const std::string& path) {
  try {
    const PretrainedFiles files = open_pretrained(path);
    return model_report(files.config, files.tensors);
  } catch (const Error&) {
    return nullptr;
  }
}

Json file_report(const std::string& path, std::uint64_t max_bytes, bool stats) {
  if (std::filesystem::is_directory(path)) {
    require_model("attn info", path);
    const bool described = std::filesystem::exists(std::filesystem::path(path) / "config.json");
    return described ? folder_report(path, stats) : file_report(path + "/model.safetensors", max_bytes, stats);
  }
  if (io::is_gguf(path)) {
    Json json = gguf_report(path, stats);
    json["model"] = gguf_model_report(path);
    return json;
  }
  const io::NamedTensors file = io::load(path, max_bytes);
  Json tensors = Json::array();
  for (const auto& [tensor_name, t] : file.tensors) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(t.numel()) * size_of(t.dtype());
    tensors.push_back(tensor_report(tensor_name, name(t.dtype()), bytes, t.shape()));
    add_stats(tensors.back(), t);
  }
  return file_report(path, file.format, std::move(tensors), Json(file.metadata));
}

std::string shape_text(const Json& shape) {
  const auto sizes = shape.get<std::vector<std::int64_t>>();
  return Shape(std::span<const std::int64_t>(sizes)).str();
}

// Returns what all names begin with, up to a dot.
std::string common_start(const Json& tensors) {
  if (tensors.size() < 2) return "";
  std::string start = tensors.front()["name"].get<std::string>();
  for (const Json& t : tensors) {
    const auto& name = t["name"].get_ref<const std::string&>();
    start.erase(std::mismatch(start.begin(), start.end(), name.begin(), name.end()).first, start.end());
  }
  return start.substr(0, start.rfind('.') + 1);
}

// A line for each row; on a terminal that is too narrow, the name has a line of its own above its numbers, which are
// broken where they have no room either.
std::string table_text(Table table, const std::string& alignment) {
  const std::vector<std::string> lines = table_lines(table, alignment);
  if (isatty(STDOUT_FILENO) == 0 || width_of(lines.front()) <= terminal_width(STDOUT_FILENO)) {
    return joined(lines, "\n") + "\n";
  }
  std::vector<std::string> names;
  for (std::vector<std::string>& row : table) {
    names.push_back(row.front());
    row.erase(row.begin());
  }
  const std::vector<std::string> numbers = table_lines(table, alignment.substr(1));
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) text.append(names[i] + "\n  " + numbers[i] + "\n");
  return fitted(text, STDOUT_FILENO, 2);
}

// A line for each tensor. Columns that have nothing to tell are left out, so that a model's lines fit into 80.
std::string tensors_text(const Json& tensors) {
  const auto any = [&](const char* key) {
    return std::any_of(tensors.begin(), tensors.end(), [key](const Json& t) { return t.contains(key) && t[key] != 0; });
  };
  const bool special = any("nan") || any("inf");
  const std::string start = common_start(tensors);
  Table table{{"name", "dtype", "shape", "bytes"}};
  const bool read = tensors.front().contains("min");
  if (read) table.front().insert(table.front().end(), {"min", "max", "mean"});
  if (special) table.front().insert(table.front().end(), {"nan", "inf"});
  const auto number = [](const Json& value) { return value.is_null() ? "-" : number_text(value.get<double>()); };
  for (const Json& t : tensors) {
    table.push_back({or_else(escaped(t["name"].get<std::string>().substr(start.size())), "-"),
                     t["dtype"].get<std::string>(), shape_text(t["shape"]),
                     std::to_string(t["bytes"].get<std::uint64_t>())});
    if (read) table.back().insert(table.back().end(), {number(t["min"]), number(t["max"]), number(t["mean"])});
    if (!special) continue;
    for (const char* key : {"nan", "inf"}) table.back().push_back(std::to_string(t[key].get<std::int64_t>()));
  }
  return (start.empty() ? "" : formatted("all names begin with {}\n", escaped(start))) +
         table_text(table, special ? "<<<>>>>>>"
                           : read  ? "<<<>>>>"
                                   : "<<<>") +
         (special ? ""
          : read  ? "no NaN and no infinities\n"
                  : "the tensors were not read; --stats reads them for their least, largest and mean values\n");
}

// Long values, as a whole config.json, are cut.
std::string metadata_text(const Json& metadata) {
  const std::size_t columns = text_columns();
  std::string text;
  for (const auto& [key, value] : metadata.items()) {
    const auto& whole = value.get_ref<const std::string&>();
    std::string line = formatted("{}: {}", escaped(key), escaped(whole));
    if (width_of(line) > columns) {
      constexpr std::string_view cut = "…";
      const std::string rest = formatted(" {} ({} bytes; --json has all)", cut, whole.size());
      line = figure::shortened(line, columns - std::min(width_of(rest) - 1, columns - 1));
      line.replace(line.size() - cut.size(), cut.size(), rest);
    }
    text.append(line).append("\n");
  }
  return text;
}

// Says what is odd about a file that is healthy: its name promises another of the formats.
std::string other_name(const std::string& path, const std::string& format) {
  const std::string extension = std::filesystem::path(path).extension().string();
  const std::string promised = extension.substr(std::min<std::size_t>(1, extension.size()));
  const bool known = std::ranges::find(kFormats, promised) != kFormats.end();
  return known && promised != format ? formatted(" (although its name ends in {})", extension) : "";
}

std::string file_text(const Json& json) {
  const auto file = json["file"].get<std::string>(), format = json["format"].get<std::string>();
  std::string text = formatted("{}: {}{}, {} tensor{}\n", escaped(file), format, other_name(file, format),
                               json["tensors"].size(), json["tensors"].size() == 1 ? "" : "s");
  if (json.contains("model") && json["model"].is_object()) {
    for (const auto& [key, value] : json["model"].items()) {
      text.append(formatted("{}: {}\n", key, value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
  if (json.contains("bytes_behind_tensors")) {
    text.append(formatted("bytes behind the last tensor, which are not read: {}\n",
                          json["bytes_behind_tensors"].get<std::uint64_t>()));
  }
  if (!json["tensors"].empty()) text.append(tensors_text(json["tensors"]));
  return text + metadata_text(json["metadata"]);
}

void info(const std::string& path, std::uint64_t max_bytes, bool stats, bool json) {
  const Json report = path.empty() ? build_report() : file_report(path, max_bytes, stats);
  write_stdout(json ? dump(report) : (path.empty() ? build_text(report) : file_text(report)));
}

}  // namespace

void define_info(Verb& verb, int&) {
  struct Flags {
    std::string file;
    std::uint64_t max_bytes = 0;
    bool stats = false, json = false;
  };
  const auto flags = std::make_shared<Flags>();
  const Option& file = verb.add_option(
      "FILE FILE", flags->file,
      "An .npy, .npz, safetensors, GGUF or CSV file, a model's folder, or - for standard input. Without it, "
      "this build and processor are described.");
  add_limit_flag(verb, flags->max_bytes);
  verb.find("--max-bytes")->needs(file);
  verb.add_flag("--stats", flags->stats, "Read the tensors of a large model, too, for their values.").needs(file);
  verb.add_flag("--json", flags->json, "Print one JSON object.");
  verb.notes(
      "The smallest, the largest and the mean value are those of the finite elements. Of a model above 256 MB they are "
      "read with --stats alone, so that a description comes at once.");
  verb.examples(
      "attn info\n"
      "printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' | attn info -\n"
      "attn info --json");
  verb.callback([flags] { info(flags->file, flags->max_bytes, flags->stats, flags->json); });
}

}  // namespace attn::tool
