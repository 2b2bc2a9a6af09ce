// What a tokenizer's files say, whichever they are: tokenizer.json, GPT-2's two files or GGUF.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
};

// A step of what is done to a text before it is cut.
struct Normalizer {
  enum class Kind { nfc, prepend, replace } kind;
  std::string from, to;
};

// A step of how it is cut. What one step yields is cut by the next.
struct Splitter {
  enum class Kind {
    pattern,
    digits,       // each number a piece, or with `together` a run of them
    after,        // `literal` ends a piece
    metaspace,    // blanks become ▁, which begins a piece where `together` is not set
    blank_before  // a blank before a piece without one
  } kind;
  const Pattern* pattern = nullptr;
  std::string literal{};
  bool together = false;
  enum class Prepend { never, first, always } prepend = Prepend::never;  // metaspace: ▁ before a text
};

struct Description {
  std::vector<std::pair<std::string, std::uint64_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // the one learned first comes first
  std::vector<AddedToken> added;
  std::vector<Normalizer> normalizers;
  std::vector<Splitter> splitters;
  bool byte_level = false;     // pieces begin as bytes, in GPT-2's alphabet
  bool byte_fallback = false;  // a character without a token becomes <0xE2>, …
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges
  bool fuse_unknown = false;
  std::optional<std::string> unknown{};
  std::vector<Id> before{}, after{};                            // ids around a text
  std::vector<std::pair<std::string, std::string>> replaced{};  // in a token when it is decoded
  bool bytes_decoded = false;                                   // <0xE2> is a byte when it is decoded
  std::size_t blanks_before = 0;                                // taken from a decoded text
  std::optional<Id> end_of_text{};
  std::string chat_template{};
};

}  // namespace attn::text
