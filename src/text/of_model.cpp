// Which tokenizer a model's text goes through, and where a prompt begins and ends.
#include <string>
#include <vector>

#include "attn/chat.hpp"
#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/tokenizer.hpp"

namespace attn {
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

std::unique_ptr<Tokenizer> tokenizer_of(const fs::path& model, std::int64_t model_tokens, const fs::path& given,
                                        const char* op) {
  const fs::path place = given.empty() ? place_of(model) : given;
  if (given.empty() && fs::is_directory(place) && !has_tokenizer(place)) {
    if (model_tokens == kBytes) return std::make_unique<ByteTokenizer>();
    throw Error(
        Error::Kind::data, op,
        "a tokenizer.json, or vocab.json and merges.txt, beside a model of " + std::to_string(model_tokens) + " tokens",
        "none", "give the folder of its tokenizer");
  }
  auto tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::load(place));
  if (tokenizer->vocab_size() > model_tokens) {
    throw Error(Error::Kind::data, op, "the tokenizer of a model of " + std::to_string(model_tokens) + " tokens",
                "one of " + std::to_string(tokenizer->vocab_size()),
                "give the folder of its tokenizer.json, or of its vocab.json and merges.txt");
  }
  return tokenizer;
}

std::vector<std::int64_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt) {
  if (std::vector<std::int64_t> ids = tokenizer.encode(prompt); !ids.empty()) return ids;
  if (const auto end = tokenizer.end_of_text()) return {*end};
  return tokenizer.encode("\n");
}

std::vector<std::int64_t> stop_ids(const Tokenizer& tokenizer, bool chat) {
  std::vector<std::int64_t> all = tokenizer.end_ids();
  if (const auto end = tokenizer.end_of_text()) all.push_back(*end);
  if (!chat) return all;
  if (const auto end = ChatTemplate::of(tokenizer).end_of_turn(tokenizer)) all.push_back(*end);
  return all;
}

}  // namespace attn
