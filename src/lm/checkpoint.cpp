// A GPT's parameters in Hugging Face's names and layouts.
#include "attn/checkpoint.hpp"

#include <map>
#include <set>
#include <vector>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr std::string_view kPrefix = "transformer.", kHead = "lm_head.weight", kTraining = "training.";
constexpr const char *kConfig = "config", *kFormat = "format";
constexpr std::size_t kLongestConfig = 1 << 20;

// A tensor of the file, and which of our parameters it holds.
struct Entry {
  std::string name;
  Shape shape;
  std::vector<std::string> parameters;  // several lie beside each other in the last dimension
  bool transposed = false;              // Conv1D's (d_in, d_out), where Linear has (d_out, d_in)
};

void add_block(std::vector<Entry>& entries, const std::string& block, std::int64_t width) {
  const auto norm = [&](const std::string& name) {
    for (const char* part : {".weight", ".bias"}) entries.push_back({name + part, {width}, {name + part}});
  };
  const auto conv = [&](const std::string& name, std::int64_t d_in, std::int64_t d_out,
                        const std::vector<std::string>& linears) {
    for (const bool weight : {true, false}) {
      const char* part = weight ? ".weight" : ".bias";
      Entry entry{name + part, weight ? Shape{d_in, d_out} : Shape{d_out}, {}, weight};
      for (const std::string& linear : linears) entry.parameters.push_back(linear + part);
      entries.push_back(entry);
    }
  };
  const std::string attention = block + "attn.", mlp = block + "mlp.";
  norm(block + "ln_1");
  conv(attention + "c_attn", width, 3 * width, {attention + "W_query", attention + "W_key", attention + "W_value"});
  conv(attention + "c_proj", width, width, {attention + "out_proj"});
  norm(block + "ln_2");
  conv(mlp + "c_fc", width, 4 * width, {mlp + "c_fc"});
  conv(mlp + "c_proj", 4 * width, width, {mlp + "c_proj"});
}

std::vector<Entry> entries_of(const GPTConfig& c) {
  std::vector<Entry> entries{{"wte.weight", {c.vocab_size, c.width}, {"wte.weight"}},
                             {"wpe.weight", {c.context_length, c.width}, {"wpe.weight"}}};
  for (std::int64_t i = 0; i < c.layers; ++i) add_block(entries, "h." + std::to_string(i) + ".", c.width);
  for (const char* name : {"ln_f.weight", "ln_f.bias"}) entries.push_back({name, {c.width}, {name}});
  if (!c.tied) entries.push_back({std::string(kHead), {c.vocab_size, c.width}, {std::string(kHead)}});
  return entries;
}

bool passed_over(std::string_view name, bool tied) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.starts_with(kTraining) ||
         (tied && name == kHead);
}

using Tensors = std::map<std::string, Tensor, std::less<>>;

// The file's tensors by their names without the prefix.
Tensors by_name(io::NamedTensors& file, const io::Origin& origin) {
  Tensors tensors;
  for (auto& [name, tensor] : file.tensors) {
    const std::string_view bare = std::string_view(name).substr(name.starts_with(kPrefix) ? kPrefix.size() : 0);
    if (!tensors.emplace(bare, std::move(tensor)).second) {
      origin.fail("every tensor once", io::in_quotes(bare) + " with and without " + std::string(kPrefix));
    }
  }
  file.tensors.clear();
  return tensors;
}

// Exactly what the config says must be there, before anything is made of the config's sizes.
void check(const GPTConfig& config, const Tensors& tensors, const io::Origin& origin) {
  if (config.layers > static_cast<std::int64_t>(tensors.size())) {
    origin.fail("the tensors of " + std::to_string(config.layers) + " layers", std::to_string(tensors.size()));
  }
  const std::vector<Entry> entries = entries_of(config);
  std::set<std::string_view> known;
  for (const Entry& entry : entries) {
    known.insert(entry.name);
    const auto found = tensors.find(entry.name);
    if (found == tensors.end()) origin.fail("a tensor " + entry.name, "none");
    const Tensor& tensor = found->second;
    if (!(tensor.shape() == entry.shape)) {
      origin.fail(entry.name + " of shape " + entry.shape.str() + ", as the config says", tensor.shape().str());
    }
    if (!is_floating(tensor.dtype()))
      origin.fail(entry.name + " of a floating dtype", std::string(name(tensor.dtype())));
  }
  for (const auto& [name, tensor] : tensors) {
    if (!known.contains(name) && !passed_over(name, config.tied)) {
      origin.fail("only tensors of a GPT-2 of " + std::to_string(config.layers) + " layers", io::in_quotes(name));
    }
  }
}

std::map<std::string_view, Parameter*> parameters_of(GPT& model) {
  std::map<std::string_view, Parameter*> parameters;
  for (Parameter* p : model.parameters()) require_present(*p), parameters.emplace(p->name, p);
  return parameters;
}

GPTConfig config_of(const std::filesystem::path& path, const io::NamedTensors& file) {
  if (const auto own = file.metadata.find(kConfig); own != file.metadata.end()) {
    return parse_gpt_config(own->second, "the metadata of " + io::source_name(path));
  }
  const auto beside = path.parent_path() / "config.json";
  const io::Buffer text = io::read_file(beside, "load_gpt");
  const std::string source = io::source_name(beside);
  if (text.bytes().size() > kLongestConfig) {
    io::Origin{"load_gpt", source}.fail("at most 1 MB", std::to_string(text.bytes().size()) + " bytes");
  }
  return parse_gpt_config(io::as_text(text.bytes()), source);
}

}  // namespace

std::filesystem::path gpt_file(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" ? path : path / "model.safetensors";
}

void save_gpt(const std::filesystem::path& path, GPT& model, const std::map<std::string, std::string>& metadata) {
  const std::filesystem::path to = gpt_file(path);
  for (const char* key : {kConfig, kFormat}) {
    if (metadata.contains(key)) throw Error(Error::Kind::argument, "save_gpt", "metadata of other names", key);
  }
  if (model.wte.scales.defined()) {
    throw Error(Error::Kind::dtype, "save_gpt", "weights in float32 or bfloat16", "int8",
                "save the model that was loaded");
  }
  const std::string config = gpt_config_json(model.config());
  io::NamedTensors file;
  file.metadata = metadata;
  file.metadata.emplace(kConfig, config);
  file.metadata.emplace(kFormat, "pt");  // from_pretrained() asks for it
  const auto parameters = parameters_of(model);
  for (const Entry& entry : entries_of(model.config())) {
    std::vector<Tensor> parts;
    for (const std::string& name : entry.parameters) {
      const Tensor& value = parameters.at(name)->value;
      parts.push_back(entry.transposed ? value.transpose(0, 1) : value);
    }
    const std::string name = entry.name == kHead ? entry.name : std::string(kPrefix) + entry.name;
    file.tensors.emplace_back(name, parts.size() == 1 ? parts[0] : concat_last(parts));
  }
  if (to.filename() == "model.safetensors") io::save_text(to.parent_path() / "config.json", config);
  io::save_safetensors(to, file);
}

GPT load_gpt(const std::filesystem::path& path, Generator rng, Precision precision) {
  const std::filesystem::path from = gpt_file(path);
  const std::string source = io::source_name(from);
  const io::Origin origin{"load_gpt", source};
  io::NamedTensors file = io::load(from);
  if (file.format != io::Format::safetensors) origin.fail("a safetensors file", "another format");
  GPTConfig config = config_of(from, file);
  Tensors tensors = by_name(file, origin);
  check(config, tensors, origin);

  config.initialise = false, config.precision = precision;
  GPT model(config, rng);
  const auto parameters = parameters_of(model);
  for (const Entry& entry : entries_of(config)) {
    Tensor& stored = tensors.find(entry.name)->second;
    const Tensor all = entry.transposed ? stored.transpose(0, 1) : stored;  // (d_out, d_in) or (d_out)
    const auto count = static_cast<std::int64_t>(entry.parameters.size());
    const std::int64_t rows = all.size(0) / count;
    for (std::int64_t i = 0; i < count; ++i) {
      const Tensor part = count == 1 ? all : all.slice(0, i * rows, (i + 1) * rows);
      parameters.at(entry.parameters[static_cast<std::size_t>(i)])->value.copy_from(part);
    }
    stored = {};  // its memory is free again
  }
  return model;
}

}  // namespace attn
