// Text to token ids and back: bytes, or GPT-2's byte-level BPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

// Every text has ids, whatever its bytes, and decode(encode(text)) is the text, byte for byte.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
  // The ids' bytes, joined: UTF-8 where the whole is, but an id may end inside a character.
  // Throws Error (argument) for an id outside [0, vocab_size()).
  virtual std::string decode(std::span<const std::int64_t> ids) const = 0;
  std::string decode(std::int64_t id) const { return decode(std::span(&id, 1)); }

  virtual std::int64_t vocab_size() const noexcept = 0;
  // The id that ends a text, where the vocabulary has one.
  virtual std::optional<std::int64_t> end_of_text() const { return {}; }
};

// A token is a byte, its id the byte's value.
class ByteTokenizer : public Tokenizer {
 public:
  using Tokenizer::decode;
  std::vector<std::int64_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int64_t> ids) const override;
  std::int64_t vocab_size() const noexcept override;
};

// GPT-2's tokenizer (Radford et al. 2019, section 2.2; Sennrich et al. 2016): text is split into pieces by GPT-2's
// pattern, and in each piece the pair that was learned first is merged until no pair is known. "<|endoftext|>" in the
// text becomes the token of that name, where the vocabulary has it. A byte that is no UTF-8 counts as a character that
// is neither letter, digit nor space.
class BPETokenizer : public Tokenizer {
 public:
  // The contents of GPT-2's vocab.json ({"token": id}) and merges.txt (a pair a line, the first one first), in
  // GPT-2's printable alphabet of bytes. Throws Error (data) unless ids run from 0 without a gap, each of the 256
  // bytes has a token, and every merge's parts and result have.
  BPETokenizer(std::string_view vocab_json, std::string_view merges_txt);
  // Reads vocab.json and merges.txt in `folder`; throws Error (file), too.
  static BPETokenizer load(const std::filesystem::path& folder);

  using Tokenizer::decode;
  std::vector<std::int64_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int64_t> ids) const override;
  std::int64_t vocab_size() const noexcept override;
  std::optional<std::int64_t> end_of_text() const override;

 private:
  struct Table;
  std::shared_ptr<const Table> table_;
};

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

}  // namespace attn
