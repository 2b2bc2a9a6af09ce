#include "web/door.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/error.hpp"
#include "attn/experiment.hpp"
#include "attn/generate.hpp"
#include "attn/gguf.hpp"
#include "attn/io.hpp"
#include "attn/module_kinds.hpp"
#include "attn/pretrained.hpp"
#include "attn/tokenizer.hpp"
#include "attn/trace.hpp"
#include "attn/words.hpp"
#include "experiment/editor.hpp"
#include "io/json_object.hpp"
#include "report/html/json.hpp"
#include "report/html/scores.hpp"

namespace attn::web {
namespace {

using report_page::Json;
using Bytes = std::span<const std::byte>;

// What is open: a language model with its tokenizer, or a module; and its last forward pass.
struct Page {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  std::unique_ptr<Module> module;
  bool crosses = false;  // the module takes a source
  Trace trace;
  Tensor logits;     // (tokens, vocab_size)
  Tensor words;      // of the last embedding
  std::string said;  // what the last call returned
};

Page& page() {
  static Page& only = *new Page;
  return only;
}

const char* say(std::string text) {
  page().said = std::move(text);
  return page().said.c_str();
}

LanguageModel& model() {
  if (!page().model) throw Error(Error::Kind::argument, "page", "a model that is open", "none");
  return *page().model;
}

std::optional<DType> kept(int weights) {
  constexpr std::array<DType, 3> dtypes{DType::f32, DType::bf16, DType::i8};
  if (weights == 3) return std::nullopt;
  if (weights < 0 || weights > 3)
    throw Error(Error::Kind::argument, "page", "weights from 0 to 3", std::to_string(weights));
  return dtypes[static_cast<std::size_t>(weights)];
}

std::string size_of_model() {
  const LanguageModelConfig& c = model().config();
  std::int64_t weights = 0;
  for (const Parameter* p : model().parameters()) weights += p->value.numel();
  Json json;
  json.object().name("vocab").number(c.vocab_size).name("context").number(c.context_length);
  json.name("layers").number(std::int64_t{std::ssize(c.layers)}).name("heads").number(c.heads);
  return json.name("weights").number(weights).name("family").text(c.family).end().str();
}

ModuleConfig module_config(const io::JsonObject& json) {
  ModuleConfig c;
  c.d_in = json.size("d_in", 0), c.d_out = json.size("d_out", 0);
  c.num_heads = json.size("num_heads", 1), c.kv_heads = json.size("kv_heads", 0), c.head_dim = json.size("head_dim", 0);
  c.window = json.size("window", 0);
  c.qkv_bias = json.flag("qkv_bias", c.qkv_bias), c.out_bias = json.flag("out_bias", c.out_bias);
  c.out_proj = json.flag("out_proj", c.out_proj), c.causal = json.flag("causal", c.causal);
  c.softcap = json.number("softcap", 0, 0, 1e30);
  if (json.find("scale")) c.scale = json.number("scale", 1, -1e30, 1e30);
  c.initialise = false;
  return c;
}

std::int64_t place(const io::JsonObject& json, const char* key) {
  return static_cast<std::int64_t>(json.number(key, 0, 0, 1 << 30));
}

// One number of a step, or of a head of it, becomes another.
Edit replaced(const io::JsonObject& json) {
  const std::int64_t row = place(json, "row"), column = place(json, "column");
  const auto* value = json.find("value");
  const double wanted = value && *value == "-inf" ? -HUGE_VAL : json.number("value", 0, -1e38, 1e38);
  const auto change = [=](const Tensor& step, const Seen&) {
    const std::int64_t rows = step.size(-2), columns = step.size(-1);
    if (row >= rows || column >= columns) {
      throw Error(Error::Kind::argument, "edit", "a place inside " + step.shape().str(),
                  std::to_string(row) + ", " + std::to_string(column));
    }
    Tensor edited = step.contiguous().clone();
    edited.data<float>()[row * columns + column] = static_cast<float>(wanted);
    return edited;
  };
  Edit edit{.step = json.text("step", ""), .change = change};
  if (json.find("head")) edit.head = place(json, "head");
  return edit;
}

Edits edits_of(std::string_view text) {
  const io::Origin origin{"edit", "the page"};
  const std::string whole = "{\"edits\":" + std::string(text) + "}";
  const io::JsonObject list(std::string_view(whole), origin);
  Edits edits;
  if (!list.find("edits")->is_array()) list.wrong("edits", "a list", *list.find("edits"));
  for (const auto& one : *list.find("edits")) {
    const io::JsonObject json(one, origin);
    edits.push_back(json.find("step") ? replaced(json) : without(HeadAt{place(json, "layer"), place(json, "head")}));
  }
  return edits;
}

void write_scores(Json& json, const Tensor& weights) {
  json.name("scores").array();
  for (std::int64_t head = 0; head < (weights.rank() == 3 ? weights.size(0) : 1); ++head) {
    const auto s = report_page::head_scores(weights.rank() == 3 ? weights.select(0, head) : weights);
    json.array().number(s.entropy).number(s.distance).number(s.first).number(s.previous).number(s.diagonal).end();
  }
  json.end();
}

// The one text's steps: without the batch's dimension.
std::string steps_json() {
  Json json;
  json.array();
  for (const auto& [name, value] : page().trace.steps()) {
    const Tensor one = value.rank() > 2 && value.size(0) == 1 ? value.select(0, 0) : value;
    json.object().name("name").text(name).name("shape").shape(one.shape());
    if (name.ends_with("weights")) write_scores(json, one);
    json.name("at").number(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(one.data<float>()))).end();
  }
  return json.end().str();
}

std::string tokens_json(const std::vector<std::int64_t>& ids) {
  Json json;
  json.object().name("ids").array();
  for (const std::int64_t id : ids) json.number(id);
  json.end().name("tokens").array();
  for (const std::int64_t id : ids) json.text(page().tokenizer->decode(id));
  return json.end().end().str();
}

// The logits behind the last token.
Tensor last_logits() {
  if (!page().logits.defined()) throw Error(Error::Kind::argument, "page", "a text that was read", "none");
  return page().logits.select(0, page().logits.size(0) - 1).contiguous();
}

std::string next_json(const Sampling& sampling, std::size_t most) {
  std::vector<Candidate> all = candidates(last_logits(), sampling);
  std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  all.resize(std::min(all.size(), most));
  Json json;
  json.array();
  for (const Candidate& c : all) {
    json.object().name("id").number(c.id).name("token").text(page().tokenizer->decode(c.id));
    json.name("chance").number(c.probability).end();
  }
  return json.end().str();
}

}  // namespace
}  // namespace attn::web

using namespace attn;
using namespace attn::web;

void* attn_new(std::size_t bytes) { return ::operator new(bytes); }
void attn_delete(void* memory) { ::operator delete(memory); }

const char* attn_open_model(const std::byte* bytes, std::size_t count, const char* config, int weights) {
  const std::string_view source = "the file";
  page().model = std::make_unique<LanguageModel>(
      load_language_model(open_pretrained(Bytes(bytes, count), config, source), source, kept(weights)));
  page().trace = {}, page().logits = {};
  return say(size_of_model());
}

void attn_open_tokenizer(const char* json, const char* config, const std::byte* gguf, std::size_t count) {
  if (count > 0) {
    page().tokenizer =
        std::make_unique<BPETokenizer>(BPETokenizer::parse(io::Gguf::parse(Bytes(gguf, count), "the file")));
  } else if (*json != 0) {
    page().tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::parse(json, config));
  } else {
    page().tokenizer = std::make_unique<ByteTokenizer>();
  }
}

void attn_open_module(const char* config, const std::byte* bytes, std::size_t count) {
  const io::Origin origin{"page", "the module's config"};
  const io::JsonObject json(std::string_view(config), origin);
  const ModuleKind& kind = module_kind(json.text("name", ""));
  Generator rng(0);
  page().module = kind.make(module_config(json), rng);
  page().crosses = kind.uses.source;
  StateDict state;
  if (count > 0) {
    for (auto& [name, value] : io::parse_safetensors(Bytes(bytes, count), "the weights").tensors) state[name] = value;
  }
  page().module->load_state_dict(state);
  page().trace = {}, page().logits = {};
}

const char* attn_encode(const char* text) { return say(tokens_json(page().tokenizer->encode(text))); }

const char* attn_decode(const std::int32_t* ids, std::size_t count) { return say(tokens_json({ids, ids + count})); }

const char* attn_embed(const char* text, int width) {
  const std::vector<std::string> words = split_words(text);
  page().words = embed_words(words, width);
  Json json;
  json.object().name("tokens").array();
  for (const std::string& word : words) json.text(word);
  const auto at = reinterpret_cast<std::uintptr_t>(page().words.data<float>());
  return say(json.end().name("at").number(static_cast<std::int64_t>(at)).end().str());
}

void attn_run(const std::int32_t* ids, std::size_t count, const char* edits) {
  const std::vector<std::int64_t> wide(ids, ids + count);
  Trace steps;
  const Tensor text = Tensor::from(std::span(wide), {static_cast<std::int64_t>(count)});
  const Tensor logits = edited_forward(model(), text, edits_of(edits), &steps);
  steps.record("logits", logits);
  page().trace = std::move(steps), page().logits = logits;
}

void attn_run_module(const float* x, std::size_t tokens, std::size_t width, const float* source, std::size_t sources,
                     const char* edits) {
  if (!page().module) throw Error(Error::Kind::argument, "page", "a module that is open", "none");
  const auto input = [&](const float* numbers, std::size_t rows) {
    return Tensor::from(std::span(numbers, rows * width),
                        {1, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width)});
  };
  Trace steps;
  if (page().crosses) {
    static_cast<AttentionLayer&>(*page().module).forward(input(x, tokens), input(source, sources), &steps);
  } else {
    experiment::Editor editor(edits_of(edits), LanguageModelConfig{}, &steps);
    page().module->forward(input(x, tokens), editor.trace());
    editor.check();
  }
  page().trace = std::move(steps);
}

const char* attn_steps() { return say(steps_json()); }

const char* attn_next(double temperature, int top_k, double top_p, int most) {
  const Sampling sampling{.temperature = temperature, .top_k = top_k, .top_p = top_p};
  return say(next_json(sampling, static_cast<std::size_t>(std::max(most, 0))));
}

int attn_draw(double temperature, int top_k, double top_p, int seed) {
  Generator rng(static_cast<std::uint32_t>(seed));
  return static_cast<int>(sample(last_logits(), {.temperature = temperature, .top_k = top_k, .top_p = top_p}, rng));
}
