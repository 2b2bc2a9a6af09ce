// A conversation as the text that a chat model was trained on.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

class Tokenizer;

struct ChatMessage {
  std::string role = {};  // one of the template's, such as "system", "user", "assistant" and "tool"
  std::string content = {};
};

struct ChatOptions {
  bool generation_prompt = true;                 // ends with the beginning of the model's answer
  std::optional<std::tm> now{};                  // what strftime_now() tells; empty for the clock's time
  std::string_view source = "the conversation";  // what errors about the JSON of a conversation call it
};

// A chat template: a program in Jinja's language, which is run as transformers runs it (sandboxed, trim_blocks,
// lstrip_blocks, raise_exception, strftime_now, tojson, {% generation %}). What a template uses and attn lacks is
// refused by name.
class ChatTemplate {
 public:
  using Tokens = std::map<std::string, std::string>;

  // `tokens`: the special tokens by the names that templates have for them, {"bos_token", "<s>"}. Throws Error (data).
  static ChatTemplate parse(std::string_view jinja, const Tokens& tokens = {});
  // The template of a tokenizer's files with their special tokens, and the one for tools, of which one may be missing.
  // Throws Error (data) where there is none.
  static ChatTemplate of(const Tokenizer& tokenizer);

  // The conversation as text. Encode it without the tokens that a tokenizer puts around a text, since the template
  // writes its own. Tokens that a message names become these tokens, as they do elsewhere. Throws Error: (argument)
  // what the template itself refuses by raise_exception, (data) where it cannot be rendered, as past the limits of
  // work (2^28 bytes written or looked at), and of 1000 macros and expressions in one another.
  std::string format(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  // The same of JSON: a list of messages, objects with a role and whatever else the template reads, or an object with
  // these as "messages" and variables of the template beside them: "tools", "documents", "add_generation_prompt",
  // "enable_thinking", "date_string", …. As in transformers, fields of a message that are null are left out, and one
  // of reasoning_content, thinking and reasoning stands for all three. Throws Error (data) for another shape.
  std::string format(std::string_view json, const ChatOptions& options = {}) const;

  // The variables and the fields of messages, of JSON as format() takes it, that the template does not name, as
  // "enable_thinkng" or "contents of message 2". Most are misspelt, and a template that writes messages whole still has
  // them. Throws Error (data) for another shape.
  std::vector<std::string> unnamed(std::string_view json) const;

  // The token that ends an answer: the special token that follows the content of an assistant's message, with nothing
  // but white space between. None where there is no such token, or where the template takes no such conversation.
  std::optional<std::int64_t> end_of_turn(const Tokenizer& tokenizer) const;

 private:
  struct Program;
  const Program& program() const;
  std::shared_ptr<const Program> program_;
};

// The ids that end what a model writes, as its tokenizer's files tell, of a conversation the end of a turn among them.
// A model's config may name others. Throws Error (data) for a conversation where there is no template.
std::vector<std::int64_t> stop_ids(const Tokenizer& tokenizer, bool conversation);

}  // namespace attn
