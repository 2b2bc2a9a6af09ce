#include "common/writing.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "attn/chat.hpp"
#include "attn/pretrained.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"

namespace attn::tool {
namespace {

using Ids = TextModel::Ids;

// Reads all --stop; an id that the model never writes is a mistake.
Ids parsed_stops(const std::vector<std::string>& flags, std::int64_t vocab_size) {
  Ids stops;
  for (const std::string& text : flags) {
    for (const std::int64_t id : parsed_ids(text, "--stop")) {
      if (id < 0 || id >= vocab_size) {
        refuse("--stop", formatted("token ids from 0 to {}, which the model has", vocab_size - 1), std::to_string(id));
      }
      stops.push_back(id);
    }
  }
  return stops;
}

}  // namespace

void define_model_file(Verb& verb, WritingFlags& flags) {
  verb.add_option("--model FILE", flags.model, "A .safetensors file, a folder of a model, or a .gguf file.").required();
}

void define_sampling(Verb& verb, WritingFlags& flags) {
  Sampling& sampling = flags.options.sampling;
  verb.add_option("--tokens N", flags.options.tokens, "The most tokens to write.").at_least(0);
  verb.add_option("--temperature T", sampling.temperature,
                  "The number that logits are divided by; 0 takes the likeliest token.")
      .at_least(0);
  verb.add_option("--top-k K", sampling.top_k, "Draw only from the K likeliest tokens; 0 draws from all.").at_least(0);
  verb.add_option("--top-p P", sampling.top_p,
                  "Draw only from the likeliest tokens whose probabilities together reach P.")
      .between(std::numeric_limits<double>::denorm_min(), 1);
  verb.add_option("--min-p P", sampling.min_p, "Draw only from tokens at least P times as likely as the likeliest.")
      .between(0, 1);
  verb.add_option("--repetition-penalty R", sampling.repetition_penalty,
                  "Divide logits above 0 of tokens that the text already has by R, and multiply those below 0.")
      .positive();
}

void define_stops(Verb& verb, WritingFlags& flags) {
  verb.add_option("--stop IDS…", flags.stops, "Further token ids that end a text, 1,2,3.");
  verb.add_option("--stop-text TEXT…", flags.stop_texts,
                  "Texts that end what is written; they are found across tokens, and not printed.");
  verb.add_option("--seed N", flags.seed,
                  "The seed of what is drawn, as torch.manual_seed takes it: its low 32 bits count.");
}

Option& define_model(Verb& verb, WritingFlags& flags) {
  Option& tokenizer = verb.add_option("--tokenizer FOLDER", flags.tokenizer,
                                      "A folder with a tokenizer.json, or with GPT-2's vocab.json and merges.txt.")
                          .default_is("the model's own, or bytes");
  verb.add_option(
          "--weights DTYPE", flags.weights,
          "Keep the weights as the file has them, quantised ones in its blocks (the least memory, and nothing is "
          "rounded), in float32, or rounded to bfloat16 or int8.")
      .default_is("file for GGUF, else float32")
      .one_of({"file", "float32", "bfloat16", "int8", "f32", "bf16", "i8"});
  verb.add_option("--cache DTYPE", flags.cache, "Keep the keys and values of the text so far in this dtype.")
      .one_of({"float32", "bfloat16", "float16", "int8", "f32", "bf16", "f16", "i8"});
  verb.add_option(
          "--precision NAME", flags.precision,
          "The precision of products: highest, high (three products of bfloat16, on AMX) or medium (one, on AMX "
          "and AVX-512 BF16, which reads prompts in less time). Other processors compute as highest. With "
          "--weights file the factors of quantised weights keep 15 bits at high, and 7 at medium.")
      .one_of({"highest", "high", "medium"});
  return tokenizer;
}

void require_writable(const Verb& verb, const WritingFlags& flags) {
  require_valid(flags.options);
  if (std::ranges::count(flags.stop_texts, "") > 0) refuse("--stop-text", "a text", "an empty one");
  if (flags.options.sampling.temperature != 0) return;
  for (const char* flag : {"--top-k", "--top-p", "--min-p", "--seed"}) {
    if (!verb.given(flag)) continue;
    refuse(flag, "a --temperature above 0, at which tokens are drawn", "0", "leave it out, or raise --temperature");
  }
}

std::unique_ptr<TextModel> load_writer(WritingFlags& flags) {
  const Precision precision = parse_precision(flags.precision);
  if (flags.weights.empty()) {
    const auto usual = usual_weights(flags.model);
    flags.weights = usual ? name(*usual) : "file";
  }
  return load_text_model(flags.model, dtype_named(flags.weights), precision);
}

GenerateOptions options_of(const WritingFlags& flags, const TextModel& model, const Tokenizer* tokenizer, bool chat) {
  GenerateOptions options = flags.options;
  options.cache = *dtype_named(flags.cache);
  options.stops = model.end_ids();
  for (const Ids& more :
       {parsed_stops(flags.stops, model.vocab_size()), tokenizer ? stop_ids(*tokenizer, chat) : Ids{}}) {
    options.stops.insert(options.stops.end(), more.begin(), more.end());
  }
  return options;
}

Ids parsed_ids(const std::string& text, const char* flag) {
  if (auto ids = numbers_in(text)) return *ids;
  refuse(flag, "token ids such as 1,2,3", text);
}

void tell_writing(Json& json, const WritingFlags& flags) {
  const Sampling& sampling = flags.options.sampling;
  json["seed"] = flags.seed;
  json["temperature"] = sampling.temperature;
  json["top_k"] = sampling.top_k;
  json["top_p"] = sampling.top_p;
  json["min_p"] = sampling.min_p;
  json["repetition_penalty"] = sampling.repetition_penalty;
  json["weights"] = flags.weights == "file" ? flags.weights : std::string(name(*dtype_named(flags.weights)));
  json["cache"] = name(*dtype_named(flags.cache));
  json["precision"] = flags.precision;
}

void Printer::text(const std::string& bytes) {
  if (tokenizer_) say(stream_.push(bytes));
}

void Printer::token(std::int64_t id) {
  if (tokenizer_) return;
  say((first_ ? "" : " ") + std::to_string(id));
  first_ = false;
}

void Printer::finish() { say(stream_.finish() + "\n"); }

void Printer::say(std::string_view text) const {
  if (silent_) return;
  write_stdout(isatty(STDOUT_FILENO) ? escaped(text, "\n\t") : std::string(text));
}

}  // namespace attn::tool
