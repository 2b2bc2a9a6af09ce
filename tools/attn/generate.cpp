// attn generate: text from a trained model, as it comes.
#include "attn/generate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/chat.hpp"
#include "attn/cut_cache.hpp"
#include "common/conversations.hpp"
#include "common/fingerprint.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/ranks.hpp"
#include "common/terminal.hpp"
#include "common/text_model.hpp"
#include "common/writing.hpp"
#include "io/file.hpp"
#include "text/answer.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

using Ids = TextModel::Ids;

struct GenerateFlags : WritingFlags {
  std::string messages;
  std::optional<std::string> system;
  std::vector<std::string> prompts, files, ids;
  bool chat = false, json = false;
};

constexpr const char* kGenerateNotes =
    "MODEL is what attn train wrote, a Hugging Face folder of GPT-2 or of the families llama, mistral, qwen2, qwen3, "
    "gemma2, gemma3_text, smollm3, olmo2, olmo3, phi3, granite, minicpm3, olmo_hybrid and qwen3_5_text, or a GGUF "
    "file of one of these families but the last three. A folder has a model.safetensors or shards with their "
    "index.\n\n"
    "One prompt is printed, and then its text as it is written. Several are written together, each as if it were "
    "alone, and printed when all are done. With --ids token ids are printed in place of text. A text that is longer "
    "than the context of a GPT-2 goes on from its latest half; other models refuse it. Without --tokenizer, the "
    "model's own is used, or bytes for a GPT-2 of 256 tokens. On a terminal, control characters are shown as "
    "\\u001b.\n\n"
    "With --chat and --messages the model's chat template is rendered as transformers renders it. The file of "
    "--messages is JSON: a list of messages, {\"role\": \"user\", \"content\": \"…\"}, or an object with these as "
    "\"messages\", and \"tools\", \"enable_thinking\", \"date_string\" or whatever else the template reads.\n\n"
    "Under mpirun or srun, as in mpirun -n 4 attn generate, every rank has all weights and its share of the keys and "
    "values of the text so far, so that a long text finds room on several machines. Rank 0 draws the tokens, and it "
    "alone prints.\n\n"
    "The exit code is 0 when all is done, 2 for wrong usage, and 3 for bad data or files.";

constexpr const char* kGenerateExamples =
    "attn generate --model model.safetensors --prompt 'Your journey'\n"
    "attn generate --model model.safetensors --prompt A The --temperature 0\n"
    "attn generate --model gpt2/ --prompt 'Attention' --top-k 40 --weights bfloat16\n"
    "attn generate --model llama/ --chat --prompt 'What is attention?'\n"
    "attn generate --model llama/ --messages conversation.json\n"
    "attn generate --model llama/ --ids 1,42,7 --tokens 20 --repetition-penalty 1.1\n"
    "attn generate --model model.safetensors --prompt 'A ' --json";

// The prompt's ids; a conversation has its own special tokens.
Ids ids_of(const std::string& prompt, const Tokenizer& tokenizer, const GenerateFlags& flags) {
  if (!flags.chat) return prompt_ids(tokenizer, prompt);
  return tokenizer.encode(conversation(tokenizer, flags.system, prompt), {.add_special_tokens = false});
}

// A Task is what the command line asks for, read and checked as far as it can be before the model runs.
struct Task {
  std::unique_ptr<TextModel> model;
  std::unique_ptr<Tokenizer> tokenizer;  // none with --ids
  std::vector<Ids> prompts;
  GenerateOptions options;
};

struct Written {
  std::vector<Continuation> texts;
  std::vector<Answer> answers;  // their texts
  double first = 0, seconds = 0;

  std::size_t tokens() const {
    std::size_t sum = 0;
    for (const Continuation& text : texts) sum += text.ids.size();
    return sum;
  }
  // Tokens a second after the first ones, which wait for the whole prompts.
  double rate() const {
    const double rest = seconds - first;
    return tokens() > texts.size() && rest > 0 ? static_cast<double>(tokens() - texts.size()) / rest : 0;
  }
};

// Whole files as prompts: no byte is added or taken away.
void read_prompts(GenerateFlags& flags, bool has_ranks) {
  const auto streams = std::ranges::count(flags.files, "-");
  if (streams > 1 || (streams == 1 && has_ranks)) {
    refuse("--prompt-file", has_ranks ? "files, which all ranks read" : "standard input (-) once",
           joined(flags.files, " "));
  }
  if (has_ranks && flags.messages == "-") refuse("--messages", "a file, which all ranks read", "standard input (-)");
  for (const std::string& file : flags.files) {
    flags.prompts.emplace_back(io::as_text(io::read_file(file, "--prompt-file").bytes()));
  }
}

Task prepared(GenerateFlags& flags, bool has_ranks) {
  read_prompts(flags, has_ranks);
  if (!flags.stop_texts.empty() && !flags.ids.empty()) {
    refuse("--stop-text", "--prompt, as there is no text with --ids", "--ids");
  }
  if (flags.prompts.empty() && flags.ids.empty() && flags.messages.empty()) flags.prompts.emplace_back();
  Task task;
  task.model = load_writer(flags);
  if (flags.ids.empty()) task.tokenizer = task.model->tokenizer(flags.tokenizer);
  for (const std::string& text : flags.prompts) task.prompts.push_back(ids_of(text, *task.tokenizer, flags));
  if (!flags.messages.empty()) {
    flags.chat = true;
    flags.prompts = {conversation_in(flags.messages, *task.tokenizer)};
    task.prompts = {task.tokenizer->encode(flags.prompts[0], {.add_special_tokens = false})};
  }
  for (const std::string& text : flags.ids) task.prompts.push_back(parsed_ids(text, "--ids"));
  task.options = options_of(flags, *task.model, task.tokenizer.get(), flags.chat);
  return task;
}

// Writes the texts, and prints them unless `silent`.
Written write(const Task& task, const GenerateFlags& flags, bool silent) {
  using Clock = std::chrono::steady_clock;
  Written written;
  const Tokenizer* const tokenizer = task.tokenizer.get();
  const bool streams = task.prompts.size() == 1;
  Printer live(tokenizer, silent || !streams);
  bool begun = flags.prompts.empty() || flags.chat;
  const auto begin = [&] {  // once the model has taken the prompt: what it refuses leaves no output
    if (!begun) live.text(flags.prompts[0]);
    begun = true;
  };
  const auto start = Clock::now();
  const auto since = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  written.answers.assign(task.prompts.size(), Answer(tokenizer, flags.stop_texts));
  written.texts = task.model->write(task.prompts, task.options, flags.seed, [&](std::size_t i, std::int64_t id) {
    if (written.first == 0) written.first = since();
    begin();
    live.token(id);
    live.text(written.answers[i].push(id));
    return !written.answers[i].stopped();
  });
  written.seconds = since();
  begin();
  for (Answer& answer : written.answers) live.text(answer.finish());
  live.finish();
  for (std::size_t i = 0; i < written.texts.size() && !streams; ++i) {
    Printer printer(tokenizer, silent);
    if (tokenizer && !flags.chat) printer.text(flags.prompts[i]);
    for (const std::int64_t id : written.texts[i].ids) printer.token(id);
    printer.text(written.answers[i].text());
    printer.finish();
  }
  return written;
}

Json text_report(const Task& task, const Written& written, std::size_t i, const GenerateFlags& flags) {
  Json json;
  if (task.tokenizer) {
    json["prompt"] = flags.prompts[i];
    json["text"] = written.answers[i].text();
  }
  json["prompt_ids"] = task.prompts[i];
  json["ids"] = written.texts[i].ids;
  const bool at_text = written.answers[i].stopped();
  json["finish"] = at_text ? "stop-text" : written.texts[i].stopped ? "stop" : "length";
  return json;
}

// One text has its values as they are, and several have a list of them.
Json report(const Task& task, const Written& written, const GenerateFlags& flags, const distributed::Transport* ranks) {
  Json json;
  json["model"] = flags.model;
  if (written.texts.size() == 1) {
    json.update(text_report(task, written, 0, flags));
  } else {
    json["texts"] = Json::array();
    for (std::size_t i = 0; i < written.texts.size(); ++i) {
      json["texts"].push_back(text_report(task, written, i, flags));
    }
  }
  tell_writing(json, flags);
  json["context_length"] = task.model->context_length();
  if (ranks) json["ranks"] = ranks->size();
  json["first_token_seconds"] = written.first;
  json["seconds"] = written.seconds;
  json["tokens_per_second"] = written.rate();
  return json;
}

// Null unless there are several.
distributed::Transport* other_ranks() {
  distributed::Transport* const ranks = launched_ranks();
  return ranks && ranks->size() > 1 ? ranks : nullptr;
}

// The same command line may find other files on another machine.
void require_alike_on(distributed::Transport& ranks, Task& task) {
  require_alike(&ranks, "the model", task.model->identity());
  require_alike(&ranks, "the ids of prompts and stops", fingerprint({}, Json{task.prompts, task.options.stops}.dump()));
}

void run(const Verb& verb, GenerateFlags& flags) {
  require_writable(verb, flags);
  distributed::Transport* const ranks = other_ranks();
  const bool is_first = !ranks || ranks->rank() == 0;
  Task task;
  together(ranks, [&] { task = prepared(flags, ranks != nullptr); });
  if (ranks) {
    require_alike_on(*ranks, task);
    task.options = distributed::over_ranks(*ranks, task.options);
  }
  Written written;
  alike(ranks, [&] { written = write(task, flags, flags.json || !is_first); });
  if (!is_first) return;
  if (flags.json) return write_stdout(dump(report(task, written, flags, ranks)));
  if (isatty(STDERR_FILENO)) {
    const std::string told =
        formatted("attn: {} tokens in {:.2f} s, {:.0f} tokens/s\n", written.tokens(), written.seconds, written.rate());
    write_stderr(fitted(told, STDERR_FILENO));
  }
}

}  // namespace

void define_generate(Verb& verb, int&) {
  const auto flags = std::make_shared<GenerateFlags>();
  define_model_file(verb, *flags);
  Option& prompt = verb.add_option("--prompt TEXT…", flags->prompts,
                                   "The beginning of the text. Of several prompts each begins a text of its own.")
                       .default_is("nothing");
  Option& file = verb.add_option("--prompt-file FILE…", flags->files,
                                 "Prompts as files, each as it stands, its last line end too; - is standard input.")
                     .not_beside(prompt);
  Option& chat =
      verb.add_flag("--chat", flags->chat,
                    "Treat the prompt as a user's message, put it into the model's chat template, and print only the "
                    "answer.");
  chat.needs(prompt).needs(file);
  verb.add_option("--system TEXT", flags->system, "The system message that begins the conversation.")
      .default_is("the template's own")
      .needs(chat);
  const Option& messages =
      verb.add_option(
              "--messages FILE", flags->messages,
              "Answer the conversation in a file, in the model's chat template, and print only the answer; - is "
              "standard input.")
          .default_is("none")
          .not_beside(prompt)
          .not_beside(file);
  Option& ids = verb.add_option("--ids IDS…", flags->ids, "The prompts as token ids, 1,2,3; then ids are printed.")
                    .not_beside(prompt)
                    .not_beside(file)
                    .not_beside(messages);
  define_sampling(verb, *flags);
  define_stops(verb, *flags);
  define_model(verb, *flags).not_beside(ids);
  verb.add_flag("--json", flags->json, "Print one JSON object when all is done.");
  verb.notes(kGenerateNotes);
  verb.examples(kGenerateExamples);
  verb.callback([&verb, flags] { run(verb, *flags); });
}

}  // namespace attn::tool
