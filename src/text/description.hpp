// This is what a tokenizer's files say, whichever they are: tokenizer.json, GPT-2's two files or GGUF.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/normalize.hpp"
#include "text/pieces.hpp"

namespace attn::text {

using Id = std::uint32_t;

inline constexpr std::string_view kBlank = "\u2581";  // ▁, what SentencePiece writes for a blank

// A token that is found in a text before all else.
struct AddedToken {
  std::string content;
  Id id = 0;
  bool special = false;
  bool lstrip = false, rstrip = false;  // takes the white space before or after it along
  bool normalized = false;              // is looked for in the normalized text
  bool single_word = false;             // is found only where no word goes on before or after it
};

// BERT's model: a piece is the longest token that begins it, then the longest one of the rest, and so on.
struct WordPiece {
  std::string begin{}, next{};        // what the vocabulary writes before a token that begins a piece, or goes on
  std::size_t most_characters = 100;  // a longer piece is unknown
};

// How BERT's tokens become a text: each that does not begin with `next` has a blank before it.
struct WordPieceDecoder {
  std::string begin{}, next{};
  bool cleanup = false;  // no blank before signs
};

struct Description {
  std::vector<std::pair<std::string, std::uint64_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // the one learned first comes first
  // A number for each merge, where several come at once: of those with one number the leftmost in a text is first.
  std::vector<std::uint32_t> merge_order{};
  std::vector<AddedToken> added;
  std::vector<Normalizer> normalizers;
  std::vector<Splitter> splitters;
  std::optional<WordPiece> word_piece{};  // where the model is BERT's, which has no merges
  bool byte_level = false;                // pieces begin as bytes, in GPT-2's alphabet
  bool byte_fallback = false;             // a character without a token becomes <0xE2>, …
  bool ignore_merges = false;             // a piece that is a token is that token, whatever the merges
  bool fuse_unknown = false;
  std::optional<std::string> unknown{};
  std::vector<Id> before{}, after{};                            // ids around a text
  std::vector<std::pair<std::string, std::string>> replaced{};  // in a token when it is decoded
  std::optional<WordPieceDecoder> word_piece_decoder{};
  bool bytes_decoded = false;      // <0xE2> is a byte when it is decoded
  bool metaspace_decoder = false;  // every ▁ goes from the first token, as the tokenizers package has it
  std::size_t blanks_before = 0;   // taken from a decoded text
  std::string padding_token{};     // of tokenizer.json, a special one where the files beside it name no other
  bool cut_left = false;           // a text that is too long loses its beginning
  std::optional<Id> end_of_text{};
  std::vector<Id> ends{};  // of what a model writes: the end of a text, of a turn and others
  std::map<std::string, std::string> chat_templates{};  // by their names: "default", "tool_use"
  std::map<std::string, std::string> named_tokens{};    // "bos_token" and its kin, as templates call them
};

}  // namespace attn::text
