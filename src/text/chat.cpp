#include "attn/chat.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <set>
#include <utility>

#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "core/utf8.hpp"
#include "io/bytes.hpp"
#include "jinja/strings.hpp"
#include "jinja/template.hpp"

namespace attn {
namespace {

using jinja::Value;

io::Origin origin_of(const ChatOptions& options) { return {"ChatTemplate", options.source}; }

void require_utf8(std::string_view text, std::string_view what) {
  for (const std::string_view c : jinja::characters(text)) {
    if (!first_character(c).valid) {
      throw Error(Error::Kind::data, "ChatTemplate", std::string(what) + " of UTF-8", io::in_quotes(c));
    }
  }
}

// Arguments of transformers' apply_chat_template() that do not reach the template.
constexpr std::array<std::string_view, 12> kArguments{"conversation",
                                                      "chat_template",
                                                      "tokenize",
                                                      "padding",
                                                      "truncation",
                                                      "max_length",
                                                      "return_tensors",
                                                      "return_dict",
                                                      "tokenizer_kwargs",
                                                      "return_assistant_tokens_mask",
                                                      "continue_final_message",
                                                      "sanitize_control_tokens"};

constexpr std::array<std::string_view, 3> kReasoning{"reasoning_content", "thinking", "reasoning"};

// Without fields that are null, and with the reasoning under all the names that templates read.
Value message_of(const Value& given, std::size_t number, const io::Origin& origin) {
  const std::string name = "message " + std::to_string(number);
  const jinja::Dict* fields = given.dict();
  if (!fields) origin.fail(name + " to be an object", jinja::kind_of(given));
  const Value* role = fields->find(jinja::text("role"));
  if (!role || !role->text())
    origin.fail(name + " with a role, such as \"user\"", role ? jinja::kind_of(*role) : "none");
  const Value* reasoning = nullptr;
  for (const std::string_view field : kReasoning) {
    const Value* value = fields->find(jinja::text(std::string(field)));
    if (!reasoning && value && !value->is<jinja::None>()) reasoning = value;
  }
  jinja::Dict message;
  if (reasoning) message.set(jinja::text("thinking"), *reasoning);
  for (const auto& [key, value] : fields->entries()) {
    if (!value.is<jinja::None>()) message.set(key, value);
  }
  if (reasoning) message.set(jinja::text("reasoning_content"), *reasoning);
  return jinja::dict(std::move(message));
}

const jinja::List& list_of(const Value& value, const std::string& name, const io::Origin& origin) {
  const jinja::List* items = value.list(jinja::Sequence::Kind::list);
  if (!items) origin.fail(name + " to be a list", jinja::kind_of(value));
  return *items;
}

using Variables = std::map<std::string, Value>;
using Words = std::set<std::string, std::less<>>;

// All that may be a name in a template.
void add_words(std::string_view jinja, Words& words) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (auto at = jinja.begin(); at != jinja.end();) {
    const auto begin = std::find_if(at, jinja.end(), in_name);
    at = std::find_if_not(begin, jinja.end(), in_name);
    if (begin != at) words.emplace(begin, at);
  }
}

// A reasoning is named where one of its names is.
bool names(const Words& words, const std::string& key) {
  if (std::ranges::find(kReasoning, key) == kReasoning.end()) return words.contains(key);
  return std::ranges::any_of(kReasoning, [&](std::string_view one) { return words.contains(one); });
}

// A conversation, as apply_chat_template() hands it to a template.
Variables variables_of(const Value& given, const ChatOptions& options) {
  const io::Origin origin = origin_of(options);
  Variables all{{"tools", jinja::none()}, {"documents", jinja::none()}};
  all["add_generation_prompt"] = jinja::boolean(options.generation_prompt);
  if (const jinja::Dict* fields = given.dict()) {
    for (const auto& [key, value] : fields->entries()) {
      if (std::ranges::count(kArguments, *key.text()) > 0) {
        origin.fail("messages, tools and other variables of a template", io::in_quotes(*key.text()));
      }
      all[*key.text()] = value;
    }
    if (!all.contains("messages")) origin.fail("a list of messages", "an object without \"messages\"");
  } else {
    all["messages"] = given;
  }
  jinja::List messages;
  for (const Value& message : list_of(all["messages"], "the messages", origin)) {
    messages.push_back(message_of(message, messages.size() + 1, origin));
  }
  if (messages.empty()) origin.fail("at least one message", "none");
  all["messages"] = jinja::list(std::move(messages));
  for (const char* const name : {"tools", "documents"}) {
    if (all[name].is<jinja::None>()) continue;
    for (const Value& one : list_of(all[name], name, origin)) {
      if (!one.dict()) origin.fail(std::string("an object as each of the ") + name, jinja::kind_of(one));
    }
  }
  return all;
}

}  // namespace

struct ChatTemplate::Program {
  std::optional<jinja::Node> plain, tools;  // one of them at least
  Words words;
  Variables tokens;

  void take(std::optional<jinja::Node>& place, std::string_view jinja) {
    require_utf8(jinja, "a chat template");
    place = jinja::parse(jinja);
    add_words(jinja, words);
  }

  std::string render(Variables variables, const ChatOptions& options) const {
    for (const auto& [name, token] : tokens) variables.emplace(name, token);
    const auto& chosen = tools && !variables["tools"].is<jinja::None>() ? tools : plain;
    if (chosen) return jinja::render(*chosen, variables, options.now);
    throw Error(Error::Kind::data, "ChatTemplate", "a conversation with \"tools\"", "one without",
                "name the tools: the model's one template, tool_use, is for these");
  }
};

ChatTemplate ChatTemplate::parse(std::string_view jinja, const Tokens& tokens) {
  auto program = std::make_shared<Program>();
  program->take(program->plain, jinja);
  for (const auto& [name, token] : tokens) program->tokens.emplace(name, jinja::text(token));
  ChatTemplate made;
  made.program_ = std::move(program);
  return made;
}

ChatTemplate ChatTemplate::of(const Tokenizer& tokenizer) {
  const std::string plain = tokenizer.chat_template(), tools = tokenizer.chat_template("tool_use");
  if (plain.empty() && tools.empty()) {
    throw Error(Error::Kind::data, "ChatTemplate",
                "a chat template in the model's files, or of several one named default", "none",
                "write the conversation's text yourself");
  }
  auto program = std::make_shared<Program>();
  if (!plain.empty()) program->take(program->plain, plain);
  if (!tools.empty()) program->take(program->tools, tools);
  for (const auto& [name, token] : tokenizer.named_tokens()) program->tokens.emplace(name, jinja::text(token));
  ChatTemplate made;
  made.program_ = std::move(program);
  return made;
}

const ChatTemplate::Program& ChatTemplate::program() const {
  if (program_) return *program_;
  throw Error(Error::Kind::argument, "ChatTemplate", "a template that was parsed", "none");
}

std::string ChatTemplate::format(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  jinja::List all;
  for (const ChatMessage& message : messages) {
    require_utf8(message.role, "a role"), require_utf8(message.content, "a message");
    jinja::Dict fields;
    fields.set(jinja::text("role"), jinja::text(message.role));
    fields.set(jinja::text("content"), jinja::text(message.content));
    all.push_back(jinja::dict(std::move(fields)));
  }
  return program().render(variables_of(jinja::list(std::move(all)), options), options);
}

std::string ChatTemplate::format(std::string_view json, const ChatOptions& options) const {
  return program().render(variables_of(jinja::from_json(json, origin_of(options)), options), options);
}

std::vector<std::string> ChatTemplate::unnamed(std::string_view json) const {
  const io::Origin origin = origin_of({});
  const Value given = jinja::from_json(json, origin);
  variables_of(given, {});  // throws for another shape
  std::vector<std::string> found;
  Words words = program().words;
  const auto look = [&](const Value& object, const char* named_elsewhere, const std::string& where) {
    for (const auto& [key, value] : object.dict()->entries()) {
      const std::string name = *key.text();
      if (value.is<jinja::None>() || name == named_elsewhere || names(words, name)) continue;
      found.push_back(name + where);
      words.insert(name);  // told once
    }
  };
  Value messages = given;
  if (const jinja::Dict* variables = given.dict()) {
    look(given, "add_generation_prompt", "");
    messages = *variables->find(jinja::text("messages"));
  }
  std::size_t number = 0;
  for (const Value& message : list_of(messages, "the messages", origin)) {
    look(message, "role", " of message " + std::to_string(++number));
  }
  return found;
}

std::optional<std::int64_t> ChatTemplate::end_of_turn(const Tokenizer& tokenizer) const {
  constexpr std::string_view answer = "ANSWER";
  const std::array<ChatMessage, 2> turns{ChatMessage{"user", "QUESTION"}, {"assistant", std::string(answer)}};
  std::string text;
  try {
    text = format(turns, {.generation_prompt = false});
  } catch (const Error&) {
    return {};
  }
  const std::size_t at = text.rfind(answer);
  if (at == std::string::npos) return {};
  const auto after = jinja::stripped(std::string_view(text).substr(at + answer.size()), jinja::kLeft);
  const auto ids = tokenizer.encode(after, {.add_special_tokens = false});
  return !ids.empty() && tokenizer.is_special(ids.front()) ? std::optional(ids.front()) : std::nullopt;
}

}  // namespace attn
