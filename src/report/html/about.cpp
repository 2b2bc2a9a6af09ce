#include "report/html/about.hpp"

#include <algorithm>

#include "attn/error.hpp"
#include "attn/module_kinds.hpp"
#include "attn/version.hpp"
#include "core/decimal.hpp"
#include "report/html/layer.hpp"

namespace attn::report_page {
namespace {

std::vector<std::string> labels(const char* what, const std::vector<std::string>& given, std::int64_t count) {
  if (!given.empty() && static_cast<std::int64_t>(given.size()) != count) {
    throw Error(Error::Kind::shape, "report", std::to_string(count) + " " + what + ", one for each row",
                std::to_string(given.size()), "pass as many labels as the weights have queries (and keys)");
  }
  if (!given.empty()) return given;
  std::vector<std::string> numbers;
  for (std::int64_t i = 1; i <= count; ++i) numbers.push_back(std::to_string(i));
  return numbers;
}

std::string sentence(const std::vector<std::string>& tokens) {
  constexpr std::size_t most = 24;
  std::string text;
  for (std::size_t i = 0; i < std::min(tokens.size(), most); ++i) text.append(i == 0 ? "" : " ").append(tokens[i]);
  return text.append(tokens.size() > most ? " …" : "");
}

void texts(Json& json, std::string_view name, const std::vector<std::string>& list) {
  json.name(name).array();
  for (const std::string& text : list) json.text(text);
  json.end();
}

// How far one number that is multiplied may be rounded, beside float32's own rounding of the sums.
double product_unit(Precision precision) {
  return precision == Precision::highest ? 0 : precision == Precision::high ? 0x1p-16 : 0x1p-8;
}

void write_config(Json& json, const ModuleConfig& c) {
  json.object().name("d_in").number(c.d_in).name("d_out").number(c.d_out);
  json.name("context_length").number(c.context_length).name("dropout").number(c.dropout);
  json.name("num_heads").number(c.num_heads).name("qkv_bias").boolean(c.qkv_bias).name("causal").boolean(c.causal);
  json.name("scale");
  c.scale ? json.number(*c.scale) : json.null();
  const auto other = [&](const char* name, std::int64_t value) {
    if (value != 0) json.name(name).number(value);
  };
  other("kv_heads", c.kv_heads == c.num_heads ? 0 : c.kv_heads), other("window", c.window);
  if (c.head_dim != 0 && c.num_heads * c.head_dim != c.d_out) other("head_dim", c.head_dim);
  if (c.softcap != 0) json.name("softcap").number(c.softcap);
  if (const LatentSizes& s = c.latents; s.latent != 0) {
    json.name("epsilon").number(c.epsilon).name("latents").object().name("query").number(s.query);
    json.name("latent").number(s.latent).name("plain").number(s.plain).name("rotary").number(s.rotary);
    json.name("value").number(s.value).end();
  }
  json.name("out_proj").boolean(c.out_proj).name("unit").number(product_unit(c.precision)).name("rope");
  if (c.rope) {
    json.object().name("invFreq").array();
    for (const float rate : c.rope->inv_freq) json.number(static_cast<double>(rate));
    json.end().name("factor").number(c.rope->attention_factor);
    json.name("interleaved").boolean(c.rope->layout == RotaryLayout::interleaved).end();
  } else {
    json.null();
  }
  json.end();
}

// The class and what acts on it; null for a module that is not in the list, a model's or a file's.
void write_kind(Json& json, std::string_view module) {
  json.name("kind");
  const ModuleKind* kind = find_module_kind(module);
  if (!kind) {
    json.null();
    return;
  }
  const ModuleUses& uses = kind->uses;
  json.object().name("class").text(kind->class_name).name("weights").boolean(uses.weights);
  json.name("linear").boolean(uses.linear).name("mask").boolean(uses.mask).name("heads").boolean(uses.heads);
  json.name("outProj").boolean(uses.out_proj).name("source").boolean(uses.source);
  json.name("recurrent").boolean(uses.recurrent).end();  // of latents the config tells
}

// Explains in sentences what a module computes whose steps alone do not tell it; "" where they do.
std::string explained(const Block& block, const ReportOptions& options) {
  if (options.module == "average") {
    return "The plainest attention: each word becomes the mean of itself and the words before it. Nothing is learned, "
           "and every word that may be seen has the same weight.";
  }
  const ModuleKind* kind = find_module_kind(options.module);
  const Tensor* mapped = block.find("mapped keys");
  if (!kind || !kind->uses.recurrent || !mapped) return "";
  const bool delta = options.module != "linear";
  const std::string size = std::to_string(mapped->size(2));
  std::string text =
      "Attention without softmax: instead of all earlier keys and values a head keeps one state, a matrix of ";
  text += size + " × " + size + " numbers, however long the text is. ";
  text += "A word reads it by its query; before, it writes its value there by its key. ";
  if (delta) {
    text +=
        "What the state recalls for the key is taken away first, so that the value takes its place: with a beta of 1 ";
    text += "all of it, with less a part. ";
  } else {
    text += "Queries and keys are made positive, and each word’s result is divided by the sum that softmax would ";
    text += "divide by. ";
  }
  if (options.module == "gated-delta") text += "Each word also lets the state fade by its decay. ";
  text += "The weights below say the same without a state: how much of each earlier value comes back. ";
  text += delta ? "They may be negative, and rows need not sum to 1." : "Rows sum to 1.";
  const std::int64_t heads = block.weights().size(0);
  if (heads > 1) text += " Each of the " + std::to_string(heads) + " heads has a state of its own.";
  return text;
}

// Tells what no pattern of random weights can say; "" where the weights were trained.
std::string random_note(const ReportOptions& options) {
  if (!options.random_weights) return "";
  const ModuleKind* kind = find_module_kind(options.module);
  std::string text = options.seed ? " They were drawn with seed " + std::to_string(*options.seed) + "." : "";
  text += " Who looks at whom below is chance, and says nothing about the words; the arithmetic is the same.";
  if (!kind || !kind->uses.recurrent) text += " Random scores are small, so softmax spreads each row almost evenly.";
  return text + " Training is what gives a head a pattern.";
}

// Writes the list in the page's head: [name, text].
void write_facts(Json& json, std::int64_t batch, const ReportOptions& options) {
  const auto fact = [&](const char* name, const std::string& text) {
    if (!text.empty()) json.array().text(name).text(text).end();
  };
  json.name("facts").array();
  fact("module", options.module);
  fact("command", options.command);
  fact("seed", options.seed ? std::to_string(*options.seed) : "");
  if (!options.module.empty()) {
    const std::string dropout = shortest_decimal(options.config ? options.config->dropout : 0);
    fact("dropout flavour", std::string(name(options.flavour)));
    fact("mode", options.training ? "training, dropout " + dropout : "evaluation: nothing is dropped");
  }
  if (batch > 1) fact("text", std::to_string(options.item + 1) + " of " + std::to_string(batch) + " in the batch");
  fact("version", std::string("attn ") + ATTN_VERSION);
  json.end();
}

}  // namespace

Words words_of(const Block& block, const ReportOptions& options) {
  const std::int64_t queries = block.weights().size(1), keys = block.weights().size(2);
  Words words;
  words.queries = labels("tokens", options.tokens, queries);
  const bool own = !options.key_tokens.empty() || queries != keys;
  words.keys = own ? labels("key tokens", options.key_tokens, keys) : words.queries;
  words.title = options.title.empty() ? sentence(options.tokens) : options.title;
  if (words.title.empty()) words.title = std::to_string(queries) + " tokens";
  words.explained = explained(block, options);
  words.unit = !options.unit.empty() ? options.unit : options.repeated_ids.empty() ? "word" : "token";
  return words;
}

void write_about(Json& json, std::int64_t batch, const Words& words, const std::vector<Check>& checks,
                 const ReportOptions& options) {
  json.name("title").text(words.title).name("unit").text(words.unit);
  json.name("module").text(options.module);
  write_kind(json, options.module);
  write_facts(json, batch, options);
  json.name("explained").text(words.explained).name("seed");
  options.seed ? json.number(static_cast<std::int64_t>(*options.seed)) : json.null();
  json.name("flavour").text(name(options.flavour)).name("training").boolean(options.training);
  json.name("config");
  if (options.config) {
    write_config(json, *options.config);
  } else {
    json.null();
  }
  texts(json, "tokens", words.queries);
  if (words.keys != words.queries) texts(json, "keyTokens", words.keys);
  texts(json, "notes", options.notes);
  json.name("randomWeights").text(random_note(options)).name("start").object();
  json.name("layer").number(*options.layer).name("head").number(*options.head).end();
  write_checks(json, checks);
}

}  // namespace attn::report_page
