#include "common/conversations.hpp"

#include <unistd.h>

#include <vector>

#include "attn/chat.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"

namespace attn::tool {

std::string conversation(const Tokenizer& tokenizer, const std::optional<std::string>& system,
                         const std::string& user) {
  std::vector<ChatMessage> messages;
  if (system) messages.push_back({"system", *system});
  messages.push_back({"user", user});
  return ChatTemplate::of(tokenizer).format(messages);
}

std::string conversation_in(const std::filesystem::path& file, const Tokenizer& tokenizer) {
  const io::Buffer buffer = io::read_file(file, "--messages");
  const std::string_view json = io::as_text(buffer.bytes());
  const ChatTemplate chat = ChatTemplate::of(tokenizer);
  const std::string source = io::source_name(file);
  const std::string text = chat.format(json, {.source = source});
  if (const auto unnamed = chat.unnamed(json); !unnamed.empty()) {
    const std::string told = "attn: the model's chat template does not name " + escaped(joined(unnamed, ", ")) +
                             ": is it spelt as the template has it?\n";
    write_stderr(fitted(told, STDERR_FILENO));
  }
  return text;
}

}  // namespace attn::tool
