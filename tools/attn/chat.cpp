// attn chat: a conversation with a model, a line of standard input for each message.
#include "attn/chat.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "common/writing.hpp"
#include "text/answer.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

using Ids = TextModel::Ids;

struct ChatFlags : WritingFlags {
  ChatFlags() { options.tokens = 1000; }

  std::optional<std::string> system;
  bool json = false;
};

constexpr const char* kChatNotes =
    "Each line of standard input is a message, and the model's answer is printed as it is written. A message of "
    "several lines has a \\ at the end of each but the last. Empty lines are passed over. The end of the input, Ctrl-D "
    "in a terminal, ends the conversation.\n\n"
    "At --temperature 0 each answer is, but for rounding, the one that attn generate --messages gives to the same "
    "conversation: the model's chat template is rendered anew. The model reads only what it has not read before, where "
    "its layers can forget the rest. One generator draws for the whole conversation, and a conversation that fills the "
    "model's context is refused. MODEL is as of attn generate.\n\n"
    "The exit code is 0 when all is done, 2 for wrong usage, and 3 for bad data or files.";

constexpr const char* kChatExamples =
    "attn chat --model llama/\n"
    "attn chat --model llama/ --system 'Answer in one sentence.' --tokens 200\n"
    "attn chat --model llama/ --temperature 0 <questions.txt";

struct Reply {
  std::string text;
  std::int64_t tokens = 0, read = 0;  // written, and read before them
  std::string_view finish = "length";
  double seconds = 0;
};

// What was said so far, and a decoder that has read most of it.
class Conversation {
 public:
  Conversation(const ChatFlags& flags, TextModel& model, const Tokenizer& tokenizer)
      : flags_(flags),
        tokenizer_(tokenizer),
        template_(ChatTemplate::of(tokenizer)),
        options_(options_of(flags, model, &tokenizer, true)),
        context_(model.context_length()),
        decoder_(*model.language_model(), 1, options_.cache),
        rng_(flags.seed) {
    if (flags.system) messages_.push_back({"system", *flags.system});
  }

  // Throws Error for what the template refuses, and for a conversation that fills the model's context.
  Reply answer(const std::string& message, Printer& live) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    messages_.push_back({"user", message});
    Ids text = tokenizer_.encode(template_.format(messages_), {.add_special_tokens = false});
    Reply reply = {.read = read(text)};
    Answer answer(&tokenizer_, flags_.stop_texts);
    const std::int64_t most = std::min(options_.tokens, context_ - std::ssize(text));
    bool ended = false;
    while (!ended && !answer.stopped() && reply.tokens < most) {
      if (reply.tokens > 0) next(text.back());
      const std::int64_t id = next_token(logits_, options_, rng_, text);
      ended = std::ranges::find(options_.stops, id) != options_.stops.end();
      if (!ended) live.text(answer.push(id)), text.push_back(id), ++reply.tokens;
    }
    reply.finish = answer.stopped() ? "stop-text" : ended ? "stop" : "length";
    live.text(answer.finish());
    live.finish();
    messages_.push_back({"assistant", reply.text = answer.text()});
    reply.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return reply;
  }

  const std::vector<ChatMessage>& messages() const { return messages_; }

 private:
  // Reads `text` behind the beginning that the decoder has of it, and returns how many tokens these were.
  std::int64_t read(const Ids& text) {
    if (std::ssize(text) >= context_) {
      throw Error(Error::Kind::argument, "chat", formatted("a conversation of less than {} tokens", context_),
                  std::to_string(text.size()), "begin a new one");
    }
    std::int64_t known = std::ranges::mismatch(text, read_).in1 - text.begin();
    known = std::min(known, std::ssize(text) - 1);  // the last one's logits are wanted
    if (known < std::ssize(read_) && !forgets_from(known)) decoder_.truncate(0, known = 0);
    read_.assign(text.begin(), text.begin() + known);
    logits_ = decoder_.read(0, std::span(text).subspan(static_cast<std::size_t>(known)));
    read_ = text;
    return std::ssize(text) - known;
  }

  void next(std::int64_t id) {
    logits_ = decoder_.read(0, {{id}});
    read_.push_back(id);
  }

  // A state is a sum over all tokens, and a window has let go of keys: such layers cannot go back.
  bool forgets_from(std::int64_t length) {
    try {
      decoder_.truncate(0, length);
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  const ChatFlags& flags_;
  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  GenerateOptions options_;
  std::int64_t context_;
  Decoder decoder_;
  Generator rng_;
  std::vector<ChatMessage> messages_;
  Ids read_;  // by the decoder
  Tensor logits_;
};

// The next message, or none at the end of the input. `asks`: a person is asked for it.
std::optional<std::string> next_message(bool asks) {
  std::string message;
  while (message.empty()) {
    if (asks) write_stdout("> ");
    bool goes_on = true;
    for (std::string line; goes_on && std::getline(std::cin, line);) {
      if (line.ends_with('\r')) line.pop_back();
      goes_on = line.ends_with('\\');
      message += goes_on ? line.substr(0, line.size() - 1) + "\n" : line;
    }
    if (std::ferror(stdin) != 0) {
      throw Error(Error::Kind::file, "chat", "messages on standard input", "input that cannot be read");
    }
    if (goes_on && message.empty()) return asks ? (write_stdout("\n"), std::nullopt) : std::nullopt;
  }
  return message;
}

Json report(const ChatFlags& flags, const Conversation& conversation, const std::vector<Reply>& replies) {
  Json json;
  json["model"] = flags.model;
  json["messages"] = Json::array();
  for (const auto& [role, content] : conversation.messages()) {
    json["messages"].push_back({{"role", role}, {"content", content}});
  }
  json["answers"] = Json::array();
  for (const Reply& reply : replies) {
    json["answers"].push_back(
        {{"tokens_read", reply.read}, {"tokens", reply.tokens}, {"finish", reply.finish}, {"seconds", reply.seconds}});
  }
  tell_writing(json, flags);
  return json;
}

void run(const Verb& verb, ChatFlags& flags) {
  require_writable(verb, flags);
  const auto model = load_writer(flags);
  const auto tokenizer = model->tokenizer(flags.tokenizer);
  Conversation conversation(flags, *model, *tokenizer);
  const bool asks = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !flags.json;
  if (asks) write_stderr("attn: Ctrl-D ends the conversation\n");
  std::vector<Reply> replies;
  while (const auto message = next_message(asks)) {
    Printer live(tokenizer.get(), flags.json);
    replies.push_back(conversation.answer(*message, live));
    if (replies.back().finish == "length") {
      write_stderr(fitted(formatted("attn: the answer is cut after {} tokens; --tokens N allows more, up to the "
                                    "model's context\n",
                                    replies.back().tokens),
                          STDERR_FILENO));
    }
  }
  if (flags.json) write_stdout(dump(report(flags, conversation, replies)));
}

}  // namespace

void define_chat(Verb& verb, int&) {
  const auto flags = std::make_shared<ChatFlags>();
  define_model_file(verb, *flags);
  verb.add_option("--system TEXT", flags->system, "The system message that begins the conversation.")
      .default_is("the template's own");
  define_sampling(verb, *flags);
  define_stops(verb, *flags);
  define_model(verb, *flags);
  verb.add_flag("--json", flags->json,
                "Print one JSON object when all is done, whose messages attn generate --messages takes.");
  verb.notes(kChatNotes);
  verb.examples(kChatExamples);
  verb.callback([&verb, flags] { run(verb, *flags); });
}

}  // namespace attn::tool
