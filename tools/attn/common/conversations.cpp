#include "common/conversations.hpp"

#include <vector>

#include "attn/chat.hpp"
#include "io/file.hpp"

namespace attn::tool {

std::string conversation(const Tokenizer& tokenizer, const std::string& system, const std::string& user) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", user});
  return ChatTemplate::of(tokenizer).format(messages);
}

std::string conversation_in(const std::filesystem::path& file, const Tokenizer& tokenizer) {
  const io::Buffer buffer = io::read_file(file, "--messages");
  return ChatTemplate::of(tokenizer).format(io::as_text(buffer.bytes()));
}

}  // namespace attn::tool
