#include "web/door.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/encoder.hpp"
#include "attn/error.hpp"
#include "attn/experiment.hpp"
#include "attn/generate.hpp"
#include "attn/gguf.hpp"
#include "attn/io.hpp"
#include "attn/module_kinds.hpp"
#include "attn/pretrained.hpp"
#include "attn/reference.hpp"
#include "attn/tokenizer.hpp"
#include "attn/trace.hpp"
#include "attn/words.hpp"
#include "io/json_object.hpp"
#include "lm/editor.hpp"
#include "report/html/health.hpp"
#include "report/html/json.hpp"
#include "report/html/layer.hpp"
#include "web/page.hpp"

namespace attn::web {
namespace {

using report_page::Json;
using Bytes = std::span<const std::byte>;

// Holds what is open, a language model or an encoder with its tokenizer, or a module, and its last forward pass.
struct Page {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<Encoder> encoder;  // one of the two
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  std::unique_ptr<Module> module;
  bool crosses = false;  // the module takes a source
  Trace trace;
  std::unique_ptr<Decoder> decoder;  // of the model, which has read these ids
  std::vector<std::int64_t> read;
  std::vector<std::int64_t> ids, plain_ids;  // of the last pass, and of the last one without edits
  Tensor logits, plain;                      // theirs, (tokens, vocab_size); of an encoder the hidden states
  Tensor words;                              // of the last embedding
  report_page::Blocks blocks;                // the trace, put in order
  Tensor rows;                               // of the last attn_rows()
  std::string said;                          // what the last call returned
};

Page& page() {
  static Page& only = *new Page;
  return only;
}

std::optional<DType> kept(int weights) {
  constexpr std::array<DType, 3> dtypes{DType::f32, DType::bf16, DType::i8};
  if (weights == 3) return std::nullopt;
  if (weights < 0 || weights > 3)
    throw Error(Error::Kind::argument, "page", "weights from 0 to 3", std::to_string(weights));
  return dtypes[static_cast<std::size_t>(weights)];
}

std::string size_of(Module& model, const LanguageModelConfig& c, bool writes) {
  std::int64_t weights = 0;
  for (const Parameter* p : model.parameters()) weights += p->value.numel();
  Json json;
  json.object().name("vocab").number(c.vocab_size).name("context").number(c.context_length);
  json.name("layers").number(std::int64_t{std::ssize(c.layers)}).name("heads").number(c.heads);
  return json.name("weights").number(weights).name("family").text(c.family).name("writes").boolean(writes).end().str();
}

// One number of a step, or of a head of it, becomes another.
Tensor with_number(const Tensor& step, std::int64_t row, std::int64_t column, float value) {
  const std::int64_t rows = step.size(-2), columns = step.size(-1);
  if (row >= rows || column >= columns) {
    throw Error(Error::Kind::argument, "edit", "a place inside " + step.shape().str(),
                std::to_string(row) + ", " + std::to_string(column));
  }
  Tensor edited = step.contiguous().clone();
  edited.data<float>()[row * columns + column] = value;
  return edited;
}

// The number itself, or, where a step is named that comes before, the one that stands at the same place there.
void add_replaced(const io::JsonObject& json, Edits& edits) {
  const std::int64_t row = place(json, "row"), column = place(json, "column");
  std::optional<std::int64_t> head;
  if (json.find("head")) head = place(json, "head");
  const auto add = [&](std::string step, std::function<Tensor(const Tensor&, const Seen&)> change) {
    edits.push_back({.step = std::move(step), .head = head, .change = std::move(change)});
  };
  if (!json.find("from")) {
    const auto* given = json.find("value");
    const bool hidden = given && *given == "-inf";
    const auto value = static_cast<float>(hidden ? -HUGE_VAL : json.number("value", 0, -1e38, 1e38));
    return add(json.text("step", ""),
               [=](const Tensor& step, const Seen&) { return with_number(step, row, column, value); });
  }
  const auto before = std::make_shared<Tensor>();
  add(json.text("from", ""), [=](const Tensor& step, const Seen&) { return *before = step.clone(); });
  add(json.text("step", ""), [=](const Tensor& step, const Seen&) {
    const std::int64_t at = row * step.size(-1) + column;
    return with_number(step, row, column, at < before->numel() ? before->data<float>()[at] : 0);
  });
}

}  // namespace

const char* say(std::string text) {
  page().said = std::move(text);
  return page().said.c_str();
}

LanguageModel& model() {
  if (!page().model) throw Error(Error::Kind::argument, "page", "a model that is open", "none");
  return *page().model;
}

const Tokenizer& tokenizer() { return *page().tokenizer; }

Edits edits_of(std::string_view text) {
  const io::Origin origin{"edit", "the page"};
  const std::string whole = "{\"edits\":" + std::string(text) + "}";
  const io::JsonObject list(std::string_view(whole), origin);
  Edits edits;
  if (!list.find("edits")->is_array()) list.wrong("edits", "a list", *list.find("edits"));
  for (const auto& one : *list.find("edits")) {
    const io::JsonObject json(one, origin);
    if (json.find("step")) {
      add_replaced(json, edits);
    } else {
      edits.push_back(without(HeadAt{place(json, "layer"), place(json, "head")}));
    }
  }
  return edits;
}

namespace {

// The one text's steps: without the batch's dimension.
std::string steps_json() {
  Json json;
  json.array();
  for (const auto& [name, value] : page().trace.steps()) {
    const Tensor one = value.rank() > 2 && value.size(0) == 1 ? value.select(0, 0) : value;
    json.object().name("name").text(name).name("shape").shape(one.shape());
    json.name("at").number(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(one.data<float>()))).end();
  }
  return json.end().str();
}

// Puts these in order, each layer as a page that is made has it, but for its numbers.
std::string blocks_json() {
  page().blocks = report_page::arrange(page().trace, 0);
  Json json;
  json.object().name("blocks").array();
  for (const report_page::Block& block : page().blocks.blocks) {
    json.object().name("label").text(block.label).name("heads").number(block.weights().size(0));
    json.name("causal").boolean(block.looks_causal());
    report_page::write_scores(json, block.weights());
    report_page::write_sinks(json, block);
    json.name("steps").array();
    for (const auto& [name, tensor] : block.steps) {
      json.object();
      report_page::write_step(json, *find_step(name));
      const auto at = reinterpret_cast<std::uintptr_t>(tensor.data<float>());
      json.name("shape").shape(tensor.shape()).name("at").number(static_cast<std::int64_t>(at)).end();
    }
    json.end().end();
  }
  return json.end().end().str();
}

// Returns what the heads of each layer do while ids are read twice.
std::string names_json(const std::vector<std::int64_t>& ids) {
  std::vector<std::int64_t> twice = ids;
  twice.insert(twice.end(), ids.begin(), ids.end());
  Trace steps;
  model().forward(Tensor::from(std::span<const std::int64_t>(twice), {std::ssize(twice)}), {.trace = &steps});
  Json json;
  json.object().name("named").number(report_page::kNamed).name("layers").array();
  for (const report_page::Block& block : report_page::arrange(steps, 0).blocks) {
    std::vector<report_page::HeadKinds> kinds;
    for (std::int64_t head = 0; head < block.weights().size(0); ++head)
      kinds.push_back(report_page::head_kinds(block.weights().select(0, head), ids));
    json.object();
    report_page::write_kinds(json, kinds);
    json.end();
  }
  return json.end().end().str();
}

// True where a query sees a key that is not later.
Tensor past(std::int64_t rows, std::int64_t columns) {
  Tensor keep = Tensor::zeros({rows, columns}, DType::boolean);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j <= std::min(i, columns - 1); ++j) keep.data<bool>()[i * columns + j] = true;
  }
  return keep;
}

// Models have rows behind their tokenizer's last token, so that sizes are round.
std::string text_of(std::int64_t id) { return id < tokenizer().vocab_size() ? tokenizer().decode(id) : std::string(); }

std::string tokens_json(const std::vector<std::int64_t>& ids) {
  Json json;
  json.object().name("ids").array();
  for (const std::int64_t id : ids) json.number(id);
  json.end().name("tokens").array();
  for (const std::int64_t id : ids) json.text(text_of(id));
  return json.end().end().str();
}

// The logits behind the last token.
Tensor last(const Tensor& logits) {
  if (!logits.defined()) throw Error(Error::Kind::argument, "page", "a text that was read", "none");
  return logits.select(0, logits.size(0) - 1).contiguous();
}

// Returns how likely each token follows; 0 where it may not be drawn.
std::vector<double> chances(const Tensor& logits, const Sampling& sampling) {
  std::vector<double> all(static_cast<std::size_t>(logits.size(1)), 0);
  for (const Candidate& c : candidates(last(logits), sampling)) all[static_cast<std::size_t>(c.id)] = c.probability;
  return all;
}

// Returns the loss in nats a token; NaN where no token has one before it.
double loss(const Tensor& logits) {
  const auto count = std::ssize(page().ids);
  if (count < 2 || logits.size(0) != count) return NAN;
  return mean_of(token_losses(logits, Tensor::from(std::span<const std::int64_t>(page().ids), {count})));
}

// Returns the logits of the same text without edits, where it was read so, else those of the last pass.
const Tensor& plain_logits() { return page().plain_ids == page().ids ? page().plain : page().logits; }

std::string next_json(const Sampling& sampling, std::size_t most) {
  const Tensor& plain = plain_logits();
  const std::vector<double> after = chances(page().logits, sampling), before = chances(plain, sampling);
  const auto larger = [&](std::size_t id) { return std::max(after[id], before[id]); };
  std::vector<std::size_t> order(after.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  most = std::min(most, order.size());
  std::ranges::partial_sort(
      order, order.begin() + static_cast<std::ptrdiff_t>(most),
      [&](std::size_t a, std::size_t b) { return larger(a) != larger(b) ? larger(a) > larger(b) : a < b; });
  order.resize(most);
  Json json;
  json.object().name("loss").number(loss(page().logits)).name("before").number(loss(plain)).name("tokens").array();
  for (const std::size_t id : order) {
    const auto number = static_cast<std::int64_t>(id);
    json.object().name("id").number(number).name("token").text(text_of(number));
    json.name("chance").number(after[id]).name("before").number(before[id]).end();
  }
  return json.end().end().str();
}

}  // namespace
}  // namespace attn::web

using namespace attn;
using namespace attn::web;

void* attn_new(std::size_t bytes) { return ::operator new(bytes); }
void attn_delete(void* memory) { ::operator delete(memory); }

const char* attn_open_model(const std::byte* bytes, std::size_t count, const char* config, int weights) {
  const std::string_view source = "the file";
  end_experiment();
  page().decoder.reset(), page().read.clear(), page().plain_ids.clear();
  page().trace = {}, page().logits = {}, page().plain = {};
  if (auto encoder = encoder_in(Bytes(bytes, count), config, source)) {
    page().encoder = std::move(encoder);
    page().model.reset();
    return say(size_of(*page().encoder, page().encoder->config().model, false));
  }
  page().model = std::make_unique<LanguageModel>(
      load_language_model(open_pretrained(Bytes(bytes, count), config, source), source, kept(weights)));
  page().encoder.reset();
  return say(size_of(model(), model().config(), true));
}

int attn_open_tokenizer(const char* json, const char* config, const std::byte* gguf, std::size_t count) {
  if (count > 0) {
    page().tokenizer =
        std::make_unique<BPETokenizer>(BPETokenizer::parse(io::Gguf::parse(Bytes(gguf, count), "the file")));
  } else if (*json != 0) {
    page().tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::parse(json, config));
  } else {
    page().tokenizer = std::make_unique<ByteTokenizer>();
  }
  return static_cast<int>(page().tokenizer->vocab_size());
}

void attn_open_module(const char* config, const std::byte* bytes, std::size_t count) {
  const io::Origin origin{"page", "the module's config"};
  const io::JsonObject json(std::string_view(config), origin);
  const ModuleKind& kind = module_kind(json.text("name", ""));
  Generator rng(static_cast<std::uint64_t>(place(json, "seed")), dropout_flavour(json.text("flavour", "mkl")));
  page().module = kind.make(module_config(json), rng);
  page().crosses = kind.uses.source;
  StateDict state;
  if (count > 0) {
    for (auto& [name, value] : io::parse_safetensors(Bytes(bytes, count), "the weights").tensors) state[name] = value;
  }
  page().module->load_state_dict(state);
  page().module->train(json.flag("training", false));
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
  Page& now = page();
  const Tensor logits = now.encoder ? now.encoder->forward(text, {.edits = edits_of(edits), .trace = &steps})
                                    : model().forward(text, {.edits = edits_of(edits), .trace = &steps});
  steps.record(now.encoder ? "hidden" : "logits", logits);
  now.trace = std::move(steps), now.ids = wide, now.logits = logits;
  if (std::string_view(edits) == "[]") now.plain_ids = wide, now.plain = logits;
}

void attn_read(const std::int32_t* ids, std::size_t count) {
  Page& now = page();
  std::vector<std::int64_t> wide(ids, ids + count), held = std::move(now.read);
  // A call that fails leaves neither behind.
  std::unique_ptr<Decoder> decoder = std::move(now.decoder);
  const bool goes_on = decoder && held.size() < count && std::equal(held.begin(), held.end(), wide.begin());
  if (!goes_on) decoder = std::make_unique<Decoder>(model(), 1), held.clear();
  const Tensor logits = decoder->read(0, std::span<const std::int64_t>(wide).subspan(held.size()));
  now.trace = {}, now.logits = now.plain = logits.view({1, logits.numel()});
  now.ids = now.plain_ids = now.read = std::move(wide), now.decoder = std::move(decoder);
}

void attn_run_module(const float* x, std::size_t tokens, std::size_t width, const float* source, std::size_t sources,
                     const char* edits) {
  if (!page().module) throw Error(Error::Kind::argument, "page", "a module that is open", "none");
  const auto input = [&](const float* numbers, std::size_t rows) {
    return Tensor::from(std::span(numbers, rows * width),
                        {1, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width)});
  };
  Trace steps;
  const Edits changes = edits_of(edits);
  editing::Editor editor(changes, LanguageModelConfig{}, &steps);
  Trace* const trace = changes.empty() ? &steps : editor.trace();  // AveragePast has no step that could be edited
  if (page().crosses) {
    static_cast<AttentionLayer&>(*page().module).forward(input(x, tokens), input(source, sources), trace);
  } else {
    page().module->forward(input(x, tokens), trace);
  }
  editor.check();
  page().trace = std::move(steps);
}

const char* attn_steps() { return say(steps_json()); }

const char* attn_blocks() { return say(blocks_json()); }

const char* attn_checks() {
  Json json;
  json.object();
  report_page::write_checks(json, report_page::health(page().blocks));
  return say(json.end().str());
}

const char* attn_names(const std::int32_t* ids, std::size_t count) { return say(names_json({ids, ids + count})); }

const char* attn_space(int block) {
  const auto& blocks = page().blocks.blocks;
  if (block < 0 || block >= std::ssize(blocks)) {
    throw Error(Error::Kind::argument, "page", "one of " + std::to_string(blocks.size()) + " layers",
                std::to_string(block));
  }
  Json json;
  json.object();
  report_page::write_space(json, blocks[static_cast<std::size_t>(block)]);
  return say(json.end().str());
}

const float* attn_rows(const char* way, const float* numbers, std::size_t rows, std::size_t columns) {
  const auto high = static_cast<std::int64_t>(rows), wide = static_cast<std::int64_t>(columns);
  const Tensor given = Tensor::from(std::span(numbers, rows * columns), {high, wide});
  const auto divided = [](const Tensor& weights) {
    return reference::mask_renormalise(weights, past(weights.size(0), weights.size(1)));
  };
  const std::string_view name = way;
  if (name != "softmax" && name != "naive" && name != "sum" && name != "divided") {
    throw Error(Error::Kind::argument, "rows", "softmax, naive, sum or divided", name);
  }
  page().rows = name == "softmax" ? reference::softmax(given)
                : name == "naive" ? reference::softmax_naive(given)
                : name == "sum"   ? reference::normalise_by_sum(given)
                                  : divided(given);
  return page().rows.data<float>();
}

const char* attn_cosine(const std::int32_t* other, std::size_t count, int first) {
  if (!page().encoder || !page().logits.defined())
    throw Error(Error::Kind::argument, "page", "a text that an encoder has read", "none");
  const Pooling pooling = first != 0 ? Pooling::first : Pooling::mean;
  const std::vector<std::vector<std::int64_t>> texts{{other, other + count}};
  const Tensor second = page().encoder->embed(texts, pooling).select(0, 0);
  const auto cosine = [&](const Tensor& hidden) {
    return reference::matmul(pool(hidden, pooling, true).unsqueeze(0), second.unsqueeze(1)).at({0, 0});
  };
  Json json;
  json.object().name("cosine").number(cosine(page().logits));
  return say(json.name("before").number(cosine(plain_logits())).end().str());
}

const char* attn_next(double temperature, int top_k, double top_p, int most) {
  const Sampling sampling{.temperature = temperature, .top_k = top_k, .top_p = top_p};
  return say(next_json(sampling, static_cast<std::size_t>(std::max(most, 0))));
}

int attn_draw(double temperature, int top_k, double top_p, int seed) {
  Generator rng(static_cast<std::uint32_t>(seed));
  return static_cast<int>(
      sample(last(page().logits), {.temperature = temperature, .top_k = top_k, .top_p = top_p}, rng));
}
