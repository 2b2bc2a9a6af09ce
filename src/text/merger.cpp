#include "text/merger.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "attn/error.hpp"

namespace attn::text {

void Merger::merge(std::string_view piece, std::vector<std::int64_t>& ids) {
  vocabulary_.symbols_of(piece, first_);
  if (first_.size() >= kNoRank) {
    throw Error(Error::Kind::argument, "BPETokenizer::encode", "less than 4 GB of text", std::to_string(first_.size()),
                "encode it in parts");
  }
  const auto size = static_cast<std::uint32_t>(first_.size());
  symbols_.resize(size);
  waiting_.clear();
  for (std::uint32_t i = 0; i < size; ++i) symbols_[i] = {first_[i], kNoRank, i - 1, i + 1};
  for (std::uint32_t i = 0; i + 1 < size; ++i) rank_pair(i);
  while (!waiting_.empty()) {
    std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    const auto [order, at] = waiting_.back();
    waiting_.pop_back();
    const std::uint32_t rank = symbols_[at].rank;
    if (rank != kNoRank && vocabulary_.order(rank) == order) merge_pair(at);  // else the pair is no more
  }
  for (std::uint32_t i = 0; i < size; i = symbols_[i].next) ids.push_back(symbols_[i].id);
}

// Symbol `at` and the next one wait to be merged, if that is known.
void Merger::rank_pair(std::uint32_t at) {
  Symbol& left = symbols_[at];
  left.rank = left.next < symbols_.size() ? vocabulary_.rank(left.id, symbols_[left.next].id) : kNoRank;
  if (left.rank == kNoRank) return;
  waiting_.emplace_back(vocabulary_.order(left.rank), at);
  std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
}

void Merger::merge_pair(std::uint32_t at) {
  Symbol& left = symbols_[at];
  Symbol& right = symbols_[left.next];
  left.id = vocabulary_.merged(left.rank);
  left.next = right.next;
  right.rank = kNoRank;
  if (left.next < symbols_.size()) symbols_[left.next].previous = at;
  rank_pair(at);
  if (at > 0) rank_pair(left.previous);
}

}  // namespace attn::text
