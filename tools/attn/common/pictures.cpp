#include "common/pictures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "common/terminal.hpp"

namespace attn::tool {
namespace {

constexpr const char* kBare = "weights (queries, keys), (heads, queries, keys) or (layers, heads, queries, keys)";

bool is_weights(std::string_view name) { return name == "weights" || name.ends_with(".weights"); }

std::string names_of(const io::NamedTensors& file) {
  std::string names;
  for (const auto& [name, tensor] : file.tensors) names.append(names.empty() ? "" : ", ").append(printable(name));
  return names.empty() ? "none" : names;
}

// The tensor that is meant as weights, if the file is not a steps file.
const Tensor* bare_weights(const io::NamedTensors& file, const std::string& chosen, const std::string& source) {
  if (!chosen.empty()) {
    if (const Tensor* tensor = file.find(chosen)) return tensor;
    throw Error(Error::Kind::argument, "--tensor", "a tensor of " + source + ": " + names_of(file), printable(chosen));
  }
  const bool steps =
      std::any_of(file.tensors.begin(), file.tensors.end(), [](const auto& t) { return is_weights(t.first); });
  if (steps) return nullptr;
  if (file.tensors.size() == 1) return &file.tensors.front().second;
  throw Error(Error::Kind::data, source, "steps (attn run … --save-steps FILE) or one tensor of weights",
              "tensors " + names_of(file), "choose one with --tensor NAME");
}

void record_bare(const Tensor& weights, const std::string& source, Trace& steps) {
  const bool empty = weights.numel() == 0;
  if (weights.rank() < 2 || weights.rank() > 4 || empty) {
    throw Error(Error::Kind::shape, source, kBare, weights.shape().str(),
                "to compute weights from vectors, pass a module and --input " + source);
  }
  if (weights.rank() == 2) return steps.record("weights", weights.unsqueeze(0));
  if (weights.rank() == 3) return steps.record("weights", weights);
  for (std::int64_t layer = 0; layer < weights.size(0); ++layer) {
    steps.record(fmt::format("layers.{}.weights", layer), weights.select(0, layer));
  }
}

// One label a line, as --save-steps leaves them.
std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

const Tensor& any_weights(const Trace& steps) {
  const auto& all = steps.steps();
  return std::find_if(all.begin(), all.end(), [](const auto& step) { return is_weights(step.first); })->second;
}

void label(Pictures& pictures, const PictureFlags& flags) {
  const Tensor& weights = any_weights(pictures.steps);
  if (weights.rank() < 2) throw Error(Error::Kind::shape, "weights", kBare, weights.shape().str());
  const std::int64_t queries = weights.size(-2), keys = weights.size(-1);
  if (!flags.input.tokens.empty()) {
    pictures.tokens = load_tokens(flags.input.tokens, queries, "--tokens", "query");
  } else if (const auto at = pictures.metadata.find("tokens"); at != pictures.metadata.end()) {
    pictures.tokens = split_lines(at->second);
    if (static_cast<std::int64_t>(pictures.tokens.size()) != queries) pictures.tokens.clear();
  }
  if (keys == queries) pictures.key_tokens = pictures.tokens;
}

Pictures of_file(const CLI::App& verb, const PictureFlags& flags) {
  const std::string& path = flags.module.module;
  require_no_module_flags(verb, "a file of steps or weights");
  require_one_stdin({path, flags.input.tokens, flags.key_tokens});
  const std::string source = path == "-" ? "standard input" : printable(path);
  io::NamedTensors file = io::load(path);
  Pictures pictures;
  pictures.metadata = std::move(file.metadata);
  if (const auto at = pictures.metadata.find("module"); at != pictures.metadata.end()) pictures.module = at->second;
  if (const Tensor* bare = bare_weights(file, flags.input.tensor, source)) {
    record_bare(*bare, source, pictures.steps);
  } else {
    for (const auto& [name, tensor] : file.tensors) pictures.steps.record(name, tensor);
  }
  label(pictures, flags);
  return pictures;
}

Pictures of_module(const CLI::App& verb, const PictureFlags& flags) {
  Pictures pictures;
  require_one_stdin({flags.input.input, flags.input.tokens, flags.key_tokens});
  Job job = prepare(verb, flags.module, flags.input, true);
  if (job.x.tensor.numel() == 0 || (job.context && job.context->tensor.numel() == 0)) {
    throw Error(Error::Kind::shape, "attn " + verb.get_name(), "inputs that are not empty", job.x.tensor.shape().str());
  }
  job.forward(&pictures.steps);
  pictures.module = flags.module.module;
  pictures.tokens = job.tokens;
  pictures.key_tokens = job.context_tokens;
  pictures.notes = job.notes;
  pictures.job = std::move(job);
  return pictures;
}

void require_known(const std::string& what) {
  if (what == "-" || std::filesystem::exists(std::filesystem::path(what))) return;
  throw Error(Error::Kind::argument, "WHAT",
              fmt::format("a module ({}) or a file of steps or weights", fmt::join(module_names(), ", ")),
              printable(what));
}

}  // namespace

void add_picture_flags(CLI::App& verb, PictureFlags& flags) {
  add_module_flags(verb, flags.module, true);
  add_input_flags(verb, flags.input, false);
  verb.add_option("--key-tokens", flags.key_tokens, "Words for the keys, where they are not the queries'")
      ->option_text("FILE");
  verb.add_option("--item", flags.item, "Which text of a batch, counted from 1. Default: 1")->option_text("N");
}

Pictures load_pictures(const CLI::App& verb, const PictureFlags& flags) {
  const std::vector<std::string> modules = module_names();
  const bool module = std::find(modules.begin(), modules.end(), flags.module.module) != modules.end();
  if (!module) require_known(flags.module.module);
  Pictures pictures = module ? of_module(verb, flags) : of_file(verb, flags);
  if (!flags.key_tokens.empty()) {
    pictures.key_tokens = load_tokens(flags.key_tokens, any_weights(pictures.steps).size(-1), "--key-tokens", "key");
  }
  return pictures;
}

}  // namespace attn::tool
