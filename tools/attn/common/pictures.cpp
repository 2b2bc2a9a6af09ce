#include "common/pictures.hpp"

#include <algorithm>
#include <filesystem>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "common/text_model.hpp"
#include "core/escape.hpp"
#include "core/suggest.hpp"

namespace attn::tool {
namespace {

constexpr const char* kBare = "weights (queries, keys), (heads, queries, keys) or (layers, heads, queries, keys)";

bool is_weights(std::string_view name) { return name == "weights" || name.ends_with(".weights"); }

std::string names_of(const io::NamedTensors& file) {
  constexpr std::size_t most = 12;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors) {
    if (names.size() == most) break;
    names.push_back(escaped(name));
  }
  const std::size_t left = file.tensors.size() - names.size();
  if (left != 0) names.push_back(formatted("and {} more", left));
  return names.empty() ? "none" : joined(names, ", ");
}

// The tensor that is meant as weights, if the file is not a steps file.
const Tensor* bare_weights(const io::NamedTensors& file, const std::string& chosen, const std::string& source) {
  if (!chosen.empty()) {
    if (const Tensor* tensor = file.find(chosen)) return tensor;
    refuse("--tensor", "a tensor of " + source + ": " + names_of(file), chosen);
  }
  const bool steps =
      std::any_of(file.tensors.begin(), file.tensors.end(), [](const auto& t) { return is_weights(t.first); });
  if (steps) return nullptr;
  if (file.tensors.size() == 1) return &file.tensors.front().second;
  const bool model = std::any_of(file.tensors.begin(), file.tensors.end(),
                                 [](const auto& t) { return t.first.ends_with("wte.weight"); });
  throw Error(Error::Kind::data, source, "steps (attn run … --save-steps FILE) or one tensor of weights",
              "tensors " + names_of(file),
              model ? "of a trained model: --model FILE --text TEXT" : "choose one with --tensor NAME");
}

void record_bare(const Tensor& weights, const std::string& source, Trace& steps) {
  const auto none = [&](std::size_t rank) {
    return weights.rank() >= rank && weights.size(-static_cast<int>(rank)) == 0;
  };
  if (weights.rank() < 2 || weights.rank() > 4 || none(3) || none(4)) {
    throw Error(Error::Kind::shape, source, kBare, weights.shape().str(),
                "to compute weights from vectors, pass a module and --input " + source);
  }
  if (weights.rank() == 2) return steps.record("weights", weights.unsqueeze(0));
  if (weights.rank() == 3) return steps.record("weights", weights);
  for (std::int64_t layer = 0; layer < weights.size(0); ++layer) {
    steps.record(formatted("layers.{}.weights", layer), weights.select(0, layer));
  }
}

// "12", the first twelve, or "5-12", counted from 1: [first, last) of `count`.
std::pair<std::size_t, std::size_t> token_range(const std::string& text, std::size_t count) {
  if (text.empty()) return {0, count};
  const std::size_t dash = text.find('-');
  const auto number = [](std::string_view digits) { return number_in<std::size_t>(digits).value_or(0); };
  const std::size_t first = dash == std::string::npos ? 1 : number(std::string_view(text).substr(0, dash));
  const std::size_t last = number(dash == std::string::npos ? text : text.substr(dash + 1));
  if (first < 1 || first > last || last > count) {
    refuse("--tokens", formatted("with --model N or A-B, of the {} tokens of the text", count), text);
  }
  return {first - 1, last};
}

Pictures of_model(const Verb& verb, const PictureFlags& flags) {
  ReadText text = open_text(verb, flags);
  const auto [layers, heads] = text.model->size();
  const std::int64_t count = std::ssize(text.ids);
  require_scores_memory(layers, heads, count, count, kStepBytes);
  Pictures pictures;
  text.model->read(text.ids, pictures.steps);
  pictures.tokens = text.tokens;
  pictures.key_tokens = text.tokens;
  return pictures;
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
    pictures.tokens = split(at->second, '\n');
    if (static_cast<std::int64_t>(pictures.tokens.size()) != queries) pictures.tokens.clear();
  }
  if (keys == queries) pictures.key_tokens = pictures.tokens;
}

Pictures of_file(const Verb& verb, const PictureFlags& flags) {
  const std::string& path = flags.module.module;
  require_no_module_flags(verb, "a file of steps or weights");
  require_not_given(verb, {"--text", "--text-file"}, "a file of steps or weights");
  require_one_stdin({path, flags.input.tokens, flags.key_tokens});
  const std::string source = path == "-" ? "standard input" : escaped(path);
  io::NamedTensors file = io::load(path, flags.input.max_bytes);
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

Pictures of_module(const Verb& verb, const PictureFlags& flags) {
  Pictures pictures;
  require_one_stdin({flags.input.input, flags.input.text_file, flags.input.tokens, flags.key_tokens});
  Job job = prepare(verb, flags.module, flags.input, true);
  job.forward(&pictures.steps);
  pictures.module = flags.module.module;
  pictures.tokens = job.tokens;
  pictures.key_tokens = job.context_tokens;
  pictures.notes = job.notes;
  pictures.job = std::move(job);
  return pictures;
}

bool is_module(const std::string& what) {
  const std::vector<std::string> modules = module_names();
  return std::find(modules.begin(), modules.end(), what) != modules.end();
}

// Not both of WHAT, a module's name or a file's, and --model; --tokenizer with the latter alone.
void require_one(const Verb& verb, const PictureFlags& flags) {
  const std::string& what = flags.module.module;
  const std::string op = "attn " + verb.name();
  const bool model = verb.given("--model");
  if (!model && verb.given("--tokenizer")) {
    refuse(op, "--model FILE with --tokenizer", "none",
           "pass the model that reads the text; modules cut a text into words themselves");
  }
  if (model && verb.given("WHAT")) {
    refuse(op, "either WHAT (a module or a file) or --model FILE with --text", "both", op + " --help shows examples");
  }
  if (model || what == "-" || is_module(what) || std::filesystem::exists(std::filesystem::path(what))) return;
  refuse("WHAT", formatted("a module ({}) or a file of steps or weights", joined(module_names(), ", ")), what,
         did_you_mean(what, module_names()));
}

}  // namespace

void add_picture_flags(Verb& verb, PictureFlags& flags) {
  add_module_flags(verb, flags.module, true);
  add_input_flags(verb, flags.input, true);
  verb.add_option("--model FILE", flags.model,
                  "Show a model that reads --text, as attn generate takes it, instead of WHAT.");
  verb.add_option("--tokenizer FOLDER", flags.tokenizer,
                  "A folder with a tokenizer.json, or with GPT-2's vocab.json and merges.txt.")
      .default_is("the model's own, or bytes");
  verb.add_option("--key-tokens FILE", flags.key_tokens,
                  "A file of words for the keys, where they are not the queries'.");
  verb.add_option("--item N", flags.item, "The text of a batch, counted from 1.");
}

ReadText open_text(const Verb& verb, const PictureFlags& flags) {
  require_one(verb, flags);
  require_no_module_flags(verb, "--model");
  require_not_given(verb, {"--tensor"}, "--model");
  ReadText text{load_reader(flags.model, usual_weights(flags.model)), {}, {}, given_text(flags.input), {}};
  const auto tokenizer = text.model->tokenizer(flags.tokenizer);
  text.ids = tokenizer->encode(text.text);
  text.unit = dynamic_cast<const ByteTokenizer*>(tokenizer.get()) ? "byte" : "token";
  const auto [first, last] = token_range(flags.input.tokens, text.ids.size());
  text.ids = {text.ids.begin() + static_cast<std::ptrdiff_t>(first),
              text.ids.begin() + static_cast<std::ptrdiff_t>(last)};
  const std::int64_t most = text.model->context_length();
  if (text.ids.empty() || std::ssize(text.ids) > most) {
    refuse("--text", formatted("1 to {} tokens, as the model takes", most), formatted("{}", text.ids.size()),
           text.ids.empty() ? "pass --text \"some words\"" : formatted("pass a shorter text, or --tokens {}", most));
  }
  if (!flags.input.tokens.empty()) text.text = tokenizer->decode(text.ids);
  for (const std::int64_t id : text.ids) text.tokens.push_back(tokenizer->decode(id));
  return text;
}

Pictures load_pictures(const Verb& verb, const PictureFlags& flags) {
  require_one(verb, flags);
  Pictures pictures = verb.given("--model")            ? of_model(verb, flags)
                      : is_module(flags.module.module) ? of_module(verb, flags)
                                                       : of_file(verb, flags);
  if (!flags.key_tokens.empty()) {
    pictures.key_tokens = load_tokens(flags.key_tokens, any_weights(pictures.steps).size(-1), "--key-tokens", "key");
  }
  return pictures;
}

}  // namespace attn::tool
