#include "common/tokenizers.hpp"

#include <vector>

#include "attn/chat.hpp"
#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "io/file.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBytes = 256;

// Where a model's tokenizer is: in its GGUF file, or in its folder.
fs::path place_of(const fs::path& model) {
  if (fs::is_directory(model) || io::is_gguf(model)) return model;
  return model.has_parent_path() ? model.parent_path() : fs::path(".");
}

bool has_tokenizer(const fs::path& folder) {
  for (const char* name : {"vocab.json", "tokenizer.json", "tokenizer.model"}) {
    if (fs::exists(folder / name)) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_for(const fs::path& model, std::int64_t model_tokens, const std::string& given) {
  const fs::path place = given.empty() ? place_of(model) : fs::path(given);
  if (given.empty() && fs::is_directory(place) && !has_tokenizer(place)) {
    if (model_tokens == kBytes) return std::make_unique<ByteTokenizer>();
    throw Error(
        Error::Kind::data, "--tokenizer",
        "a tokenizer.json, or vocab.json and merges.txt, beside a model of " + std::to_string(model_tokens) + " tokens",
        "none", "give the folder of its tokenizer");
  }
  auto tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::load(place));
  if (tokenizer->vocab_size() > model_tokens) {
    throw Error(Error::Kind::data, "--tokenizer",
                "the tokenizer of a model of " + std::to_string(model_tokens) + " tokens",
                "one of " + std::to_string(tokenizer->vocab_size()),
                "give the folder of its tokenizer.json, or of its vocab.json and merges.txt");
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
