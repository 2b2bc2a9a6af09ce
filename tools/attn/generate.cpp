// attn generate: text from a trained model, as it comes.
#include "attn/generate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/checkpoint.hpp"
#include "attn/error.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/terminal.hpp"
#include "common/tokenizers.hpp"
#include "core/escape.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct GenerateFlags {
  std::string model, prompt, tokenizer, weights = "float32";
  GenerateOptions options;
  std::uint64_t seed = 123;
  bool json = false;
};

constexpr const char* kGenerateFooter =
    "The prompt is printed, and the text as it goes on; a text longer than the model's\n"
    "context goes on with its latest half. Without --tokenizer, vocab.json and\n"
    "merges.txt beside the model are taken, or, for a model of 256 tokens, bytes.\n"
    "On a terminal, control characters are shown as \\u001b.\n"
    "Exit codes: 0 done, 2 wrong usage, 3 bad data or files.\n"
    "\n"
    "Examples:\n"
    "  attn generate --model model.safetensors --prompt 'Your journey'\n"
    "  attn generate --model model.safetensors --prompt 'A' --temperature 0 --tokens 40\n"
    "  attn generate --model gpt2/ --prompt 'Attention is' --top-k 40 --weights bfloat16\n"
    "  attn generate --model model.safetensors --prompt 'A ' --json";

// The prompt's ids; an empty prompt is the end of a text before, or a new line.
std::vector<std::int64_t> prompt_ids(const std::string& prompt, const Tokenizer& tokenizer) {
  if (!prompt.empty()) return tokenizer.encode(prompt);
  if (const auto end = tokenizer.end_of_text()) return {*end};
  return tokenizer.encode("\n");
}

// Whole characters; for a terminal, none that would drive it but line ends and tabs.
std::string shown(std::string_view text) {
  if (!isatty(STDOUT_FILENO)) return std::string(text);
  return escaped(text, "\n\t");
}

struct Written {
  std::vector<std::int64_t> prompt, ids;
  std::string text;
  bool stopped = false;  // by the end of the text
  double first = 0, seconds = 0;
};

Written write(GPT& model, const Tokenizer& tokenizer, const GenerateFlags& flags) {
  using Clock = std::chrono::steady_clock;
  Written written;
  written.prompt = prompt_ids(flags.prompt, tokenizer);
  GenerateOptions options = flags.options;
  options.stop = tokenizer.end_of_text();
  Generator rng(flags.seed);
  Utf8Stream stream;
  const auto say = [&](const std::string& text) {
    if (!flags.json) write_stdout(shown(text));
  };
  say(stream.push(flags.prompt));
  const auto start = Clock::now();
  const auto since = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  written.ids = generate(model, written.prompt, options, rng, [&](std::int64_t id) {
    if (written.first == 0) written.first = since();
    say(stream.push(tokenizer.decode(id)));
    return true;
  });
  written.seconds = since();
  written.stopped = static_cast<std::int64_t>(written.ids.size()) < options.tokens;
  written.text = tokenizer.decode(written.ids);
  say(stream.finish() + "\n");
  return written;
}

// Tokens a second after the first one, which waits for the whole prompt.
double rate(const Written& written) {
  const double rest = written.seconds - written.first;
  return written.ids.size() > 1 && rest > 0 ? static_cast<double>(written.ids.size() - 1) / rest : 0;
}

Json report(const Written& written, const GenerateFlags& flags, const GPTConfig& config) {
  const Sampling& sampling = flags.options.sampling;
  Json json;
  json["model"] = flags.model;
  json["prompt"] = flags.prompt;
  json["text"] = written.text;
  json["prompt_ids"] = written.prompt;
  json["ids"] = written.ids;
  json["finish"] = written.stopped ? "stop" : "length";
  json["seed"] = flags.seed;
  json["temperature"] = sampling.temperature;
  json["top_k"] = sampling.top_k;
  json["top_p"] = sampling.top_p;
  json["weights"] = flags.weights;
  json["context_length"] = config.context_length;
  json["first_token_seconds"] = written.first;
  json["seconds"] = written.seconds;
  json["tokens_per_second"] = rate(written);
  return json;
}

void run(const GenerateFlags& flags) {
  require_valid(flags.options);  // before anything is printed
  GPT model = load_gpt(flags.model);
  store_matrices(model, flags.weights == "bfloat16" ? DType::bf16 : DType::f32);
  const auto tokenizer = tokenizer_for(flags.model, model.config(), flags.tokenizer);
  const Written written = write(model, *tokenizer, flags);
  if (flags.json) return write_stdout(dump(report(written, flags, model.config())));
  if (isatty(STDERR_FILENO)) {
    write_stderr(formatted("attn: {} tokens in {:.2f} s, {:.0f} tokens/s\n", written.ids.size(), written.seconds,
                           rate(written)));
  }
}

}  // namespace

void define_generate(Verb& verb, int&) {
  const auto flags = std::make_shared<GenerateFlags>();
  GenerateOptions& options = flags->options;
  verb.add_option("--model", flags->model, "A .safetensors file, or a folder with model.safetensors")
      .required()
      .value_name("PATH");
  verb.add_option("--prompt", flags->prompt, "What the text begins with; default: nothing").value_name("TEXT");
  verb.add_option("--tokens", options.tokens, "Tokens to write at most; default: 100").at_least(0).value_name("N");
  verb.add_option("--temperature", options.sampling.temperature,
                  "Logits are divided by it; 0: the likeliest; default: 1")
      .value_name("T");
  verb.add_option("--top-k", options.sampling.top_k, "Only the K likeliest tokens; default: 0, all").value_name("K");
  verb.add_option("--top-p", options.sampling.top_p, "Only the likeliest tokens, that add up to P; default: 1")
      .value_name("P");
  verb.add_option("--seed", flags->seed, "Of what is drawn; default: 123").value_name("N");
  verb.add_option("--tokenizer", flags->tokenizer, "A folder with vocab.json and merges.txt").value_name("FOLDER");
  verb.add_option("--weights", flags->weights, "float32 or bfloat16, faster and rounded; default: float32")
      .one_of({"float32", "bfloat16"})
      .value_name("DTYPE");
  verb.add_flag("--json", flags->json, "One JSON object when all is done");
  verb.footer(kGenerateFooter);
  verb.callback([flags] { run(*flags); });
}

}  // namespace attn::tool
