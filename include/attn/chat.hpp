// A conversation as the text that a chat model was trained on.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attn {

struct ChatMessage {
  std::string role, content;  // "system", "user" or "assistant"
};

struct ChatOptions {
  bool generation_prompt = true;  // ends with the beginning of the model's answer
  std::string date{};             // "26 Jul 2024", which Llama 3.1 and 3.2 are told; empty for the template's own
};

// The form of a model's conversations, known by the marks in its template. Templates are programs in Jinja's language,
// which are not run: one of another form is refused.
class ChatTemplate {
 public:
  enum class Form { chatml, llama3, gemma };

  // Throws Error (data) for a template whose form is not known, with the marks that it has.
  static ChatTemplate parse(std::string_view jinja);

  Form form() const noexcept { return form_; }
  // The conversation as text. Encode it without the tokens that a tokenizer puts around a text, since the form has its
  // own. Tokens that a message names become these tokens, as they do elsewhere. Throws Error (argument) for a role or
  // an order that the form does not have.
  std::string format(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  // The token that ends an answer.
  std::string_view end_of_turn() const noexcept;

 private:
  std::string chatml(std::span<const ChatMessage> messages, bool generation_prompt) const;
  std::string llama3(std::span<const ChatMessage> messages, const ChatOptions& options) const;
  std::string gemma(std::span<const ChatMessage> messages, bool generation_prompt) const;

  Form form_ = Form::chatml;
  bool begins_ = false;          // with the token of the beginning of a text
  bool system_ = true;           // whether there is a system's message
  bool drops_thoughts_ = false;  // what an answer holds up to </think>
  bool dated_ = false;           // Llama 3.1: the system's message tells dates
  std::string date_;             // the template's own; empty for today's
  std::string default_system_;   // ChatML: where a conversation has none
};

std::string_view name(ChatTemplate::Form form) noexcept;  // "ChatML", "Llama 3", "Gemma"

}  // namespace attn
