#include "common/tokenizers.hpp"

#include <vector>

#include "attn/chat.hpp"
#include "attn/checkpoint.hpp"
#include "attn/error.hpp"
#include "io/file.hpp"

namespace attn::tool {

std::unique_ptr<Tokenizer> tokenizer_for(const std::filesystem::path& model, const GPTConfig& config,
                                         const std::string& folder) {
  std::filesystem::path place = folder.empty() ? gpt_file(model).parent_path() : std::filesystem::path(folder);
  if (place.empty()) place = ".";
  std::unique_ptr<Tokenizer> tokenizer;
  if (!folder.empty() || std::filesystem::exists(place / "vocab.json") ||
      std::filesystem::exists(place / "tokenizer.json")) {
    tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::load(place));
  } else {
    tokenizer = std::make_unique<ByteTokenizer>();
  }
  if (tokenizer->vocab_size() != config.vocab_size) {
    throw Error(Error::Kind::data, "--tokenizer",
                "the tokenizer of a model of " + std::to_string(config.vocab_size) + " tokens",
                "one of " + std::to_string(tokenizer->vocab_size()),
                "give the folder of its tokenizer.json, or of its vocab.json and merges.txt");
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> released_tokenizer(const std::filesystem::path& place, std::int64_t model_tokens) {
  auto tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::load(place));
  if (tokenizer->vocab_size() > model_tokens) {
    throw Error(Error::Kind::data, "--tokenizer",
                "the tokenizer of a model of " + std::to_string(model_tokens) + " tokens",
                "one of " + std::to_string(tokenizer->vocab_size()), "give the folder of the model's tokenizer.json");
  }
  return tokenizer;
}

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
