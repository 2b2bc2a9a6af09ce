#include "common/tokenizers.hpp"

#include "attn/checkpoint.hpp"
#include "attn/error.hpp"

namespace attn::tool {

std::unique_ptr<Tokenizer> tokenizer_for(const std::filesystem::path& model, const GPTConfig& config,
                                         const std::string& folder) {
  const std::filesystem::path place = folder.empty() ? gpt_file(model).parent_path() : std::filesystem::path(folder);
  std::unique_ptr<Tokenizer> tokenizer;
  if (!folder.empty() || std::filesystem::exists(place / "vocab.json")) {
    tokenizer = std::make_unique<BPETokenizer>(BPETokenizer::load(place));
  } else {
    tokenizer = std::make_unique<ByteTokenizer>();
  }
  if (tokenizer->vocab_size() != config.vocab_size) {
    throw Error(Error::Kind::data, "--tokenizer",
                "the tokenizer of a model of " + std::to_string(config.vocab_size) + " tokens",
                "one of " + std::to_string(tokenizer->vocab_size()),
                "give the folder of its vocab.json and merges.txt");
  }
  return tokenizer;
}

}  // namespace attn::tool
