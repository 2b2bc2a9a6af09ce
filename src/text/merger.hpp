// Byte-pair encoding of one piece: which pairs are merged, in which order.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocabulary.hpp"

namespace attn::text {

// Merges one piece after the other, on memory that is kept. The symbols are a linked list, and pairs wait in a heap
// by (order, place): n log n for a piece of n bytes, whatever it is.
class Merger {
 public:
  explicit Merger(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void merge(std::string_view piece, std::vector<std::int64_t>& ids);

 private:
  struct Symbol {
    Id id;
    std::uint32_t rank;  // of the pair that begins here; kNoRank also where a symbol is gone
    std::uint32_t previous, next;
  };

  void rank_pair(std::uint32_t at);
  void merge_pair(std::uint32_t at);

  const Vocabulary& vocabulary_;
  std::vector<Id> first_;
  std::vector<Symbol> symbols_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waiting_;  // a heap, lowest order and then place on top
};

}  // namespace attn::text
