// GPT-2's vocab.json and merges.txt, checked, as tables to merge by.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

using Id = std::uint32_t;

inline constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class Vocabulary {
 public:
  // See BPETokenizer's constructor.
  Vocabulary(std::string_view vocab_json, std::string_view merges_txt);

  std::size_t size() const noexcept { return tokens_.size(); }
  const std::string& bytes_of(Id id) const { return tokens_[id]; }
  Id byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }
  std::optional<Id> end_of_text() const { return end_of_text_; }

  // How early the pair was learned, from 0; kNoRank when it was not.
  std::uint32_t rank(Id left, Id right) const;
  Id merged(std::uint32_t rank) const { return merged_[rank]; }

  struct Line {  // of merges.txt
    Id left, right, merged;
    std::uint32_t rank;
  };

 private:
  void index(std::vector<Line> lines);

  struct Merge {
    Id right;
    std::uint32_t rank;
  };

  std::vector<std::string> tokens_;  // bytes
  std::array<Id, 256> byte_ids_{};
  std::optional<Id> end_of_text_;
  // The merges of left token l, sorted by right: merges_[first_[l]] to merges_[first_[l + 1]]. Nothing is hashed, so
  // no file can make a lookup slow.
  std::vector<std::uint32_t> first_;
  std::vector<Merge> merges_;
  std::vector<Id> merged_;
};

// The byte as GPT-2's files write it: printable ones as themselves, the others as U+0100 and up, in order.
std::uint32_t letter_of(std::uint8_t byte);

}  // namespace attn::text
