// Text to token ids and back: bytes, or the byte-pair encodings of released models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

namespace io {
class Gguf;
}

struct EncodeOptions {
  bool add_special_tokens = true;  // those that the tokenizer's files put around a text, such as a beginning of text
  // A longer text keeps its first ids, or its last ones where the tokenizer's files say so: so many that with what is
  // put around them there are no more than this.
  std::size_t most = std::numeric_limits<std::size_t>::max();
};

struct DecodeOptions {
  bool skip_special_tokens = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<std::int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // The bytes of one id inside a text; it may begin or end within a character. Throws Error (argument) for an id
  // outside [0, vocab_size()).
  virtual std::string decode(std::int64_t id) const = 0;
  // The same where a text begins with it. BERT's tokens have a blank before them elsewhere.
  virtual std::string decode_first(std::int64_t id) const { return decode(id); }
  // The ids' bytes, joined: UTF-8 where the whole is, without the blanks that encode() puts before a text.
  std::string decode(std::span<const std::int64_t> ids, const DecodeOptions& options = {}) const;

  virtual std::int64_t vocab_size() const noexcept = 0;  // the largest id, and one
  // The id that ends a text, where the vocabulary has one.
  virtual std::optional<std::int64_t> end_of_text() const { return {}; }
  // All ids that end what a model writes, as far as the vocabulary's files tell: the end of a text, of a turn, of a
  // message.
  virtual std::vector<std::int64_t> end_ids() const { return {}; }
  virtual bool is_special(std::int64_t) const { return false; }
  // The id of what the vocabulary lacks, where it has such a token. Without one, what it lacks is passed over.
  virtual std::optional<std::int64_t> unknown_id() const { return {}; }
  // The id of a token, which is written as in the files: "<|im_end|>".
  virtual std::optional<std::int64_t> id_of(std::string_view) const { return {}; }
  // The template of the files, in Jinja's language, or one of several by its name, such as "tool_use"; an empty text
  // where they have none. See ChatTemplate.
  virtual std::string chat_template(const std::string& = "default") const { return {}; }
  // The special tokens by the names that templates have for them, {"bos_token", "<s>"}.
  virtual std::map<std::string, std::string> named_tokens() const { return {}; }
  virtual std::size_t blanks_before() const { return 0; }  // the most that decode() takes from the beginning of a text
};

// A token is a byte, and its id is the byte's value.
class ByteTokenizer : public Tokenizer {
 public:
  using Tokenizer::decode;
  std::vector<std::int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const override;
  std::string decode(std::int64_t id) const override;
  std::int64_t vocab_size() const noexcept override;
};

// Byte-pair encoding (Sennrich et al. 2016): a text is cut into pieces, and in each piece the pair that was learned
// first is merged until no pair is known. Pieces begin as bytes (GPT-2, Llama 3, Qwen, SmolLM) or as characters, where
// one without a token becomes the tokens of its bytes (Llama 2, Gemma). Ids are those of the tokenizers package; a byte
// that is no UTF-8, which that package does not take, counts as a character that is neither letter, digit nor blank.
// decode(encode(text)) is the text, byte for byte, unless the file asks for a normal form (NFC) or its vocabulary lacks
// a byte.
class BPETokenizer : public Tokenizer {
 public:
  // The contents of GPT-2's vocab.json ({"token": id}) and merges.txt (a pair a line, the first one first), in
  // GPT-2's printable alphabet of bytes. "<|endoftext|>" in a text becomes the token of that name, where the vocabulary
  // has it. Throws Error (data) unless ids run from 0 without a gap, each of the 256 bytes has a token, and every
  // merge's parts and result have.
  BPETokenizer(std::string_view vocab_json, std::string_view merges_txt);
  // The contents of tokenizer.json and, where there is one, of tokenizer_config.json, which tells the end of a text and
  // the chat template. Throws Error (data) for a file with a part that is not known here, which it names.
  static BPETokenizer parse(std::string_view tokenizer_json, std::string_view tokenizer_config_json = {},
                            std::string_view source = "tokenizer.json");
  // A GGUF file's vocabulary: its models "gpt2" and "llama". Throws Error (data).
  static BPETokenizer parse(const io::Gguf& file);
  // Reads a tokenizer.json, a GGUF file, or a folder: its tokenizer.json with tokenizer_config.json and the chat
  // templates, or else its vocab.json and merges.txt. Throws Error (data), and (file) where it cannot be read.
  static BPETokenizer load(const std::filesystem::path& path);
  // Copies share one table. Moving copies, too, so that no tokenizer is left without one.
  BPETokenizer(const BPETokenizer&) = default;
  BPETokenizer& operator=(const BPETokenizer&) = default;

  using Tokenizer::decode;
  std::vector<std::int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const override;
  std::string decode(std::int64_t id) const override;
  std::string decode_first(std::int64_t id) const override;
  std::int64_t vocab_size() const noexcept override;
  std::optional<std::int64_t> end_of_text() const override;
  std::vector<std::int64_t> end_ids() const override;
  bool is_special(std::int64_t id) const override;
  std::optional<std::int64_t> unknown_id() const override;
  std::optional<std::int64_t> id_of(std::string_view token) const override;
  std::string chat_template(const std::string& name = "default") const override;
  std::map<std::string, std::string> named_tokens() const override;
  std::size_t blanks_before() const override;

  std::vector<std::int64_t> special_ids() const;

 private:
  struct Table;
  explicit BPETokenizer(std::shared_ptr<const Table> table);
  std::shared_ptr<const Table> table_;
};

// The tokenizer that BPETokenizer::load() finds in the folder `given`, or without one in the model's folder or GGUF
// file; where there is none, bytes for a model of 256 tokens. The model may have more tokens, as tables of embeddings
// are padded. Throws Error, named `op`, for one with less, and for files that are no tokenizer.
std::unique_ptr<Tokenizer> tokenizer_of(const std::filesystem::path& model, std::int64_t model_tokens,
                                        const std::filesystem::path& given = {}, const char* op = "tokenizer");

// Returns the ids that a model reads of a prompt, with the tokens that the tokenizer puts around a text. A prompt that
// has none becomes the end of a text before it or, where the vocabulary has no such token, a new line.
std::vector<std::int64_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt);

// The text's pieces by GPT-2's pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// in order; joined they are the text.
std::vector<std::string_view> gpt2_pieces(std::string_view text);

// Text that arrives in pieces cut anywhere, as a model's tokens do, handed on in whole UTF-8 characters. What is no
// UTF-8 becomes U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // all characters that are complete by now
  std::string finish();                      // what is left, as U+FFFD

 private:
  std::string rest_;  // the beginning of a character
};

// Decodes ids as they come, to whole UTF-8 characters. Joined they are what decode() gives, but for what is no UTF-8.
class DecodeStream {
 public:
  // The tokenizer has to outlive it.
  explicit DecodeStream(const Tokenizer& tokenizer, const DecodeOptions& options = {});
  std::string push(std::int64_t id);
  std::string finish() { return characters_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::size_t blanks_;  // that may still be taken from the beginning
  bool first_ = true;
  Utf8Stream characters_;
};

}  // namespace attn
