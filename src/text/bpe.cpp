// Byte-level BPE: which pairs are merged, in which order.
#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "io/file.hpp"
#include "text/pieces.hpp"
#include "text/vocabulary.hpp"

namespace attn {
namespace {

using text::Id;
using text::kNoRank;

// Merges one piece after the other, on memory that is kept. The symbols are a linked list, and pairs wait in a heap
// by (rank, place): n log n for a piece of n bytes, whatever it is.
class Merger {
 public:
  explicit Merger(const text::Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void merge(std::string_view piece, std::vector<std::int64_t>& ids) {
    const auto size = static_cast<std::uint32_t>(piece.size());
    symbols_.resize(size);
    waiting_.clear();
    for (std::uint32_t i = 0; i < size; ++i) {
      symbols_[i] = {vocabulary_.byte_id(static_cast<std::uint8_t>(piece[i])), kNoRank, i - 1, i + 1};
    }
    for (std::uint32_t i = 0; i + 1 < size; ++i) rank_pair(i);
    while (!waiting_.empty()) {
      std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
      const auto [rank, at] = waiting_.back();
      waiting_.pop_back();
      if (symbols_[at].rank == rank) merge_pair(at);  // else the pair is no more
    }
    for (std::uint32_t i = 0; i < size; i = symbols_[i].next) ids.push_back(symbols_[i].id);
  }

 private:
  struct Symbol {
    Id id;
    std::uint32_t rank;  // of the pair that begins here; kNoRank also where a symbol is gone
    std::uint32_t previous, next;
  };

  // Symbol `at` and the next one wait to be merged, if that is known.
  void rank_pair(std::uint32_t at) {
    Symbol& left = symbols_[at];
    left.rank = left.next < symbols_.size() ? vocabulary_.rank(left.id, symbols_[left.next].id) : kNoRank;
    if (left.rank == kNoRank) return;
    waiting_.emplace_back(left.rank, at);
    std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
  }

  void merge_pair(std::uint32_t at) {
    Symbol& left = symbols_[at];
    Symbol& right = symbols_[left.next];
    left.id = vocabulary_.merged(left.rank);
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next < symbols_.size()) symbols_[left.next].previous = at;
    rank_pair(at);
    if (at > 0) rank_pair(left.previous);
  }

  const text::Vocabulary& vocabulary_;
  std::vector<Symbol> symbols_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waiting_;  // a heap, lowest rank and then place on top
};

}  // namespace

struct BPETokenizer::Table : text::Vocabulary {
  using Vocabulary::Vocabulary;
};

BPETokenizer::BPETokenizer(std::string_view vocab_json, std::string_view merges_txt)
    : table_(std::make_shared<const Table>(vocab_json, merges_txt)) {}

BPETokenizer BPETokenizer::load(const std::filesystem::path& folder) {
  const io::Buffer vocab = io::read_file(folder / "vocab.json", "BPETokenizer");
  const io::Buffer merges = io::read_file(folder / "merges.txt", "BPETokenizer");
  return {io::as_text(vocab.bytes()), io::as_text(merges.bytes())};
}

std::vector<std::int64_t> BPETokenizer::encode(std::string_view text) const {
  if (text.size() >= kNoRank) {
    throw Error(Error::Kind::argument, "BPETokenizer::encode", "less than 4 GB of text", std::to_string(text.size()),
                "encode it in parts");
  }
  std::vector<std::int64_t> ids;
  Merger merger(*table_);
  const auto end_id = table_->end_of_text();
  while (true) {
    const std::size_t stop = end_id ? std::min(text.find(text::kEndOfText), text.size()) : text.size();
    for (std::string_view part = text.substr(0, stop); !part.empty();) {
      const std::size_t length = text::piece_length(part);
      merger.merge(part.substr(0, length), ids);
      part.remove_prefix(length);
    }
    if (stop == text.size()) return ids;
    ids.push_back(*end_id);
    text.remove_prefix(stop + text::kEndOfText.size());
  }
}

std::string BPETokenizer::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error(Error::Kind::argument, "BPETokenizer::decode", "ids from 0 to " + std::to_string(vocab_size() - 1),
                  std::to_string(id));
    }
    text.append(table_->bytes_of(static_cast<Id>(id)));
  }
  return text;
}

std::int64_t BPETokenizer::vocab_size() const noexcept { return static_cast<std::int64_t>(table_->size()); }

std::optional<std::int64_t> BPETokenizer::end_of_text() const {
  const auto id = table_->end_of_text();
  return id ? std::optional<std::int64_t>(*id) : std::nullopt;
}

}  // namespace attn
