// A description's tokens and merges, checked, as tables to merge by.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/bytes.hpp"
#include "text/description.hpp"

namespace attn::text {

inline constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
inline constexpr Id kNoId = std::numeric_limits<Id>::max();

class Vocabulary {
 public:
  // Throws Error (data), in the words of `origin`.
  Vocabulary(const Description& description, const io::Origin& origin);

  std::size_t size() const noexcept { return contents_.size(); }
  const std::string& bytes_of(Id id) const { return bytes_[id]; }  // empty for an id without a token
  std::optional<Id> find(std::string_view content) const;
  const std::string& content_of(Id id) const { return contents_[id]; }  // as the files write it
  Id unknown() const { return unknown_; }                               // kNoId where there is none
  // A piece that is a token, as it stands in a text.
  std::optional<Id> find_piece(std::string_view piece) const;

  // Returns what the piece's characters or bytes begin as; what has no token and no substitute is left out.
  void symbols_of(std::string_view piece, std::vector<Id>& symbols) const;

  // How early the pair was learned, from 0; kNoRank when it was not.
  std::uint32_t rank(Id left, Id right) const;
  Id merged(std::uint32_t rank) const { return merged_[rank]; }
  // The merges with the lowest number come first, and of these the leftmost in a text.
  std::uint32_t order(std::uint32_t rank) const { return order_.empty() ? rank : order_[rank]; }

 private:
  void take_tokens(const Description& description, const io::Origin& origin);
  void take_bytes(const Description& description, const io::Origin& origin);
  void take_characters();
  void take_merges(const Description& description, const io::Origin& origin);
  Id character_id(std::uint32_t code) const;

  bool byte_level_, fuse_unknown_;
  std::vector<std::string> contents_, bytes_;      // as the files write a token, and as a text has it
  std::vector<Id> by_content_, model_by_content_;  // ids in the order of contents; all, and those of the vocabulary
  std::array<Id, 256> byte_ids_{};                 // kNoId where there is none
  std::array<Id, 128> ascii_{};
  std::vector<std::pair<std::uint32_t, Id>> characters_;  // tokens of one character, in order
  Id unknown_ = kNoId;
  // The merges of left token l, sorted by right: merges_[first_[l]] to merges_[first_[l + 1]]. Nothing is hashed, so
  // no file can make a lookup slow.
  struct Merge {
    Id right;
    std::uint32_t rank;
  };
  std::vector<std::uint32_t> first_;
  std::vector<Merge> merges_;
  std::vector<Id> merged_;
  std::vector<std::uint32_t> order_;
};

// A token of WordPiece as it begins a text.
std::string decoded_first(const std::string& token, const WordPieceDecoder& decoder);

// GPT-2's alphabet: printable bytes are themselves, the others are U+0100 and up, in order.
std::string letter_of(std::uint8_t byte);

}  // namespace attn::text
