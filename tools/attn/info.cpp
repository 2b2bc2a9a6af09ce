// attn info: this build on this machine, or what a file holds.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/io.hpp"
#include "attn/version.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"
#include "common/json.hpp"
#include "common/processor.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
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
      or_else(escaped(of("processor")), "unknown"), or_else(wrapped(features, kColumns, indent), "none known"),
      json["threads"].get<unsigned>(), wrapped(dependencies, kColumns, indent));
}

// ---- a file ---------------------------------------------------------------------------

struct Summary {
  double min = std::numeric_limits<double>::infinity(), max = -min, mean = 0;
  std::int64_t finite = 0;
  Counts counts;
};

// Of the finite elements.
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

const char* format_name(io::Format format) {
  switch (format) {
    case io::Format::npy:
      return "npy";
    case io::Format::npz:
      return "npz";
    case io::Format::safetensors:
      return "safetensors";
    case io::Format::csv:
      return "csv";
  }
  return "";
}

Json file_report(const std::string& path, const io::NamedTensors& file) {
  Json json;
  json["file"] = path;
  json["format"] = format_name(file.format);
  json["tensors"] = Json::array();
  for (const auto& [tensor_name, tensor] : file.tensors) {
    const Summary s = summarise(tensor);
    const auto number = [&](double value) { return s.finite > 0 ? json_number(value) : Json(nullptr); };
    json["tensors"].push_back({{"name", tensor_name},
                               {"dtype", name(tensor.dtype())},
                               {"shape", json_shape(tensor.shape())},
                               {"bytes", static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype())},
                               {"min", number(s.min)},
                               {"max", number(s.max)},
                               {"mean", number(s.mean)},
                               {"nan", s.counts.nan},
                               {"inf", s.counts.inf}});
  }
  json["metadata"] = Json::object();
  for (const auto& [key, value] : file.metadata) json["metadata"][key] = value;
  return json;
}

std::string shape_text(const Json& shape) {
  const auto sizes = shape.get<std::vector<std::int64_t>>();
  return Shape(std::span<const std::int64_t>(sizes)).str();
}

using Table = std::vector<std::vector<std::string>>;

// Columns as wide as their widest cell; the first `left` ones aligned left, the others right.
std::string table_text(const Table& table, std::size_t left) {
  std::vector<std::size_t> widths(table.front().size());
  for (const auto& row : table) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string text;
  for (const auto& row : table) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c != 0) text.append("  ");
      if (c >= left) text.append(widths[c] - width_of(row[c]), ' ');
      text.append(c < left ? padded(row[c], widths[c]) : row[c]);
    }
    text.append("\n");
  }
  return text;
}

std::string file_text(const Json& json) {
  Table table{{"name", "dtype", "shape", "bytes", "min", "max", "mean", "nan", "inf"}};
  const auto number = [](const Json& value) { return value.is_null() ? "-" : number_text(value.get<double>()); };
  for (const Json& t : json["tensors"]) {
    table.push_back({or_else(escaped(t["name"].get<std::string>()), "-"), t["dtype"].get<std::string>(),
                     shape_text(t["shape"]), std::to_string(t["bytes"].get<std::uint64_t>()), number(t["min"]),
                     number(t["max"]), number(t["mean"]), std::to_string(t["nan"].get<std::int64_t>()),
                     std::to_string(t["inf"].get<std::int64_t>())});
  }
  std::string text =
      formatted("{}: {}, {} tensor{}\n", escaped(json["file"].get<std::string>()), json["format"].get<std::string>(),
                json["tensors"].size(), json["tensors"].size() == 1 ? "" : "s");
  if (table.size() > 1) text.append(table_text(table, 3));
  for (const auto& [key, value] : json["metadata"].items()) {
    text.append(formatted("{}: {}\n", escaped(key), escaped(value.get<std::string>())));
  }
  return text;
}

void info(const std::string& path, std::uint64_t max_bytes, bool json) {
  const Json report = path.empty() ? build_report() : file_report(path, io::load(path, max_bytes));
  write_stdout(json ? dump(report) : (path.empty() ? build_text(report) : file_text(report)));
}

}  // namespace

void define_info(Verb& verb, int&) {
  struct Flags {
    std::string file;
    std::uint64_t max_bytes = 0;
    bool json = false;
  };
  const auto flags = std::make_shared<Flags>();
  verb.add_option("FILE", flags->file, ".npy, .npz, safetensors or CSV; - is standard input");
  add_limit_flag(verb, flags->max_bytes);
  verb.add_flag("--json", flags->json, "One JSON object");
  verb.footer(
      "Smallest, largest and mean value are of the finite elements.\n"
      "\n"
      "Examples:\n"
      "  attn info\n"
      "  printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' | attn info -\n"
      "  attn info --json");
  verb.callback([flags] { info(flags->file, flags->max_bytes, flags->json); });
}

}  // namespace attn::tool
