// attn tokens: what a model's tokenizer makes of a text, and what it is itself.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/chat.hpp"
#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "common/conversations.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/table.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"
#include "io/json_object.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

using Ids = std::vector<std::int64_t>;

struct TokensFlags {
  std::string text, tokenizer, messages, lines;
  std::optional<std::string> system;
  std::vector<std::string> ids;
  bool chat = false, plain = false, json = false;
};

constexpr const char* kTokensNotes =
    "Without a text, the tokenizer is described. With --lines, each line of a file is JSON: a text, whose ids are "
    "printed, or a list of ids, whose text is. Ids are those of the tokenizers package. A tokenizer or a chat template "
    "with a part that is not known is refused.\n\n"
    "The file of --messages is JSON: a list of messages, {\"role\": \"user\", \"content\": \"…\"}, or an object with "
    "these as \"messages\", and \"tools\", \"enable_thinking\", \"date_string\" or whatever else the model's template "
    "reads.\n\n"
    "The exit code is 0 when all is done, 2 for wrong usage, and 3 for bad data or files.";

constexpr const char* kTokensExamples =
    "attn tokens --tokenizer model/ 'Your journey starts'\n"
    "attn tokens --tokenizer model/ --chat 'What is it?' --system 'Be brief.'\n"
    "attn tokens --tokenizer model/ --messages conversation.json\n"
    "attn tokens --tokenizer tokenizer.json --decode 264,79\n"
    "attn tokens --tokenizer model/tokenizer.json";

std::string whole_characters(std::string_view bytes) {
  Utf8Stream stream;
  const std::string text = stream.push(bytes);
  return text + stream.finish();
}

Ids ids_of(const std::vector<std::string>& texts) {
  Ids ids;
  for (const std::string& text : texts) {
    const auto id = number_in<std::int64_t>(text);
    if (!id) refuse("--decode", "ids with commas between, as 264,79", text);
    ids.push_back(*id);
  }
  return ids;
}

// ---- a text ---------------------------------------------------------------------------

void show_text(const BPETokenizer& tokenizer, const TokensFlags& flags) {
  const bool from_file = !flags.messages.empty();
  const std::string text = from_file    ? conversation_in(flags.messages, tokenizer)
                           : flags.chat ? conversation(tokenizer, flags.system, flags.text)
                                        : flags.text;
  const Ids ids = tokenizer.encode(text, {.add_special_tokens = !from_file && !flags.chat && !flags.plain});
  if (flags.json) {
    Json json;
    json["text"] = text;
    json["ids"] = ids;
    json["tokens"] = Json::array();
    for (const std::int64_t id : ids) json["tokens"].push_back(tokenizer.decode(id));
    return write_stdout(dump(json));
  }
  Table table{{"id", "token"}};
  for (const std::int64_t id : ids) {
    table.push_back({std::to_string(id), "'" + escaped(tokenizer.decode(id)) + "'"});
  }
  for (const std::string& line : table_lines(table, "><")) write_stdout(line + "\n");
  write_stdout(formatted("{} tokens of {} bytes\n", ids.size(), text.size()));
}

// ---- many of them ---------------------------------------------------------------------

Json answer(const BPETokenizer& tokenizer, const Json& question, bool plain, const io::Origin& origin) {
  if (question.is_string()) {
    return tokenizer.encode(question.get_ref<const std::string&>(), {.add_special_tokens = !plain});
  }
  const bool ids =
      question.is_array() && std::ranges::all_of(question, [](const Json& id) { return id.is_number_integer(); });
  if (!ids) origin.fail("a text or a list of ids, as JSON", question.is_discarded() ? "no JSON" : question.type_name());
  for (const Json& id : question) {
    const bool known = id.is_number_unsigned() && id < tokenizer.vocab_size();
    if (!known) origin.fail("ids from 0 to " + std::to_string(tokenizer.vocab_size() - 1), id.dump());
  }
  return whole_characters(tokenizer.decode(question.get<Ids>()));
}

void answer_lines(const BPETokenizer& tokenizer, const TokensFlags& flags) {
  const io::Buffer buffer = io::read_file(flags.lines, "--lines");
  std::string answers;
  std::size_t number = 0;
  for (const std::string& line : lines_of(io::as_text(buffer.bytes()))) {
    const std::string place = "line " + std::to_string(++number) + " of " + io::source_name(flags.lines);
    const io::Origin origin{"--lines", place};
    io::require_plain_json(line, origin);
    const Json question = Json::parse(line, nullptr, false);
    answers += answer(tokenizer, question, flags.plain, origin).dump() + "\n";
  }
  write_stdout(answers);
}

// ---- itself ---------------------------------------------------------------------------

std::string chat_of(const BPETokenizer& tokenizer) {
  if (tokenizer.chat_template().empty() && tokenizer.chat_template("tool_use").empty()) return "none";
  try {
    const auto end = ChatTemplate::of(tokenizer).end_of_turn(tokenizer);
    return end ? "answers end with " + escaped(tokenizer.decode(*end)) : "a template";
  } catch (const Error& error) {
    return error.what();
  }
}

void describe(const BPETokenizer& tokenizer, bool as_json) {
  const auto end = tokenizer.end_of_text();
  std::vector<std::string> special;
  for (const std::int64_t id : tokenizer.special_ids()) special.push_back(tokenizer.decode(id));
  if (as_json) {
    Json json;
    json["vocab_size"] = tokenizer.vocab_size();
    json["end_of_text"] = end ? Json(*end) : Json();
    json["special"] = Json::object();
    for (const std::int64_t id : tokenizer.special_ids()) json["special"][tokenizer.decode(id)] = id;
    json["chat"] = chat_of(tokenizer);
    return write_stdout(dump(json));
  }
  constexpr std::size_t indent = 15, most = 12;
  const std::size_t more = special.size() > most ? special.size() - most : 0;
  special.resize(special.size() - more);
  for (std::string& token : special) token = escaped(token);
  if (more > 0) special.push_back(formatted("and {} more", more));
  write_stdout(formatted("tokens         {}\nend of text    {}\nspecial        {}\nchat           {}\n",
                         tokenizer.vocab_size(), end ? escaped(tokenizer.decode(*end)) : "none",
                         special.empty() ? "none" : wrapped(special, kColumns, indent), chat_of(tokenizer)));
}

void run(const TokensFlags& flags, bool has_text) {
  const BPETokenizer tokenizer = BPETokenizer::load(flags.tokenizer);
  if (!flags.lines.empty()) return answer_lines(tokenizer, flags);
  if (!flags.ids.empty()) return write_stdout(escaped(tokenizer.decode(ids_of(flags.ids)), "\n\t") + "\n");
  if (has_text || !flags.messages.empty()) return show_text(tokenizer, flags);
  describe(tokenizer, flags.json);
}

}  // namespace

void define_tokens(Verb& verb, int&) {
  const auto flags = std::make_shared<TokensFlags>();
  const Option& text = verb.add_option("TEXT", flags->text, "The text.").default_is("the tokenizer is described");
  verb.add_option("--tokenizer FILE", flags->tokenizer,
                  "A model's folder with a tokenizer.json, or with GPT-2's vocab.json and merges.txt; or a "
                  "tokenizer.json; or a GGUF file.")
      .required();
  Option& chat =
      verb.add_flag("--chat", flags->chat, "Put TEXT into the model's chat template, as the user's message.");
  chat.needs(text);
  verb.add_option("--system TEXT", flags->system, "The system message that begins the conversation.")
      .default_is("the template's own")
      .needs(chat);
  const Option& messages =
      verb.add_option("--messages FILE", flags->messages,
                      "Put the conversation in a file into the model's chat template; - is standard input.")
          .default_is("none")
          .not_beside(text);
  Option& plain =
      verb.add_flag("--plain", flags->plain, "Leave out the special tokens that the tokenizer puts around a text.");
  const Option& decode = verb.add_option("--decode IDS", flags->ids, "Print the text of these ids.")
                             .delimiter(',')
                             .not_beside(text)
                             .not_beside(messages);
  const Option& lines = verb.add_option("--lines FILE", flags->lines, "Encode, or decode, the lines of a file.")
                            .not_beside(text)
                            .not_beside(messages)
                            .not_beside(decode);
  plain.needs(text).needs(lines).not_beside(chat);
  verb.add_flag("--json", flags->json, "Print one JSON object.").not_beside(decode).not_beside(lines);
  verb.notes(kTokensNotes);
  verb.examples(kTokensExamples);
  verb.callback([flags, &text] { run(*flags, text.given()); });
}

}  // namespace attn::tool
