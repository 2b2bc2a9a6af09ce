#include <algorithm>
#include <string>

#include "attn/distributed.hpp"
#include "attn/error.hpp"

namespace attn::distributed {
namespace {

// Piece i of `pieces` even ones.
Run share(std::int64_t tokens, std::int64_t pieces, std::int64_t i) {
  return {tokens / pieces * i + std::min(i, tokens % pieces),
          tokens / pieces * (i + 1) + std::min(i + 1, tokens % pieces)};
}

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;  // sums of positions stay far from overflow

void require_ranks(std::int64_t ranks) {
  if (ranks >= 1 && ranks <= kMostRanks) return;
  throw Error(Error::Kind::argument, "layout", "at least one rank, and at most " + std::to_string(kMostRanks),
              std::to_string(ranks));
}

void require_tokens(std::int64_t tokens) {
  if (tokens >= 0 && tokens <= kMostTokens) return;
  throw Error(Error::Kind::argument, "layout", "0 to " + std::to_string(kMostTokens) + " tokens",
              std::to_string(tokens));
}

}  // namespace

Layout::Layout(std::vector<std::vector<Run>> runs) : runs_(std::move(runs)) {
  require_ranks(static_cast<std::int64_t>(runs_.size()));
  std::vector<Run> all;
  for (std::vector<Run>& own : runs_) {
    std::erase_if(own, [](const Run& run) { return run.first == run.last; });
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  for (const Run& run : all) {
    if (!run.empty()) require_tokens(run.last);
    if (run.first != tokens_ || run.empty()) {
      throw Error(Error::Kind::argument, "layout",
                  "runs that hold every position once: one from " + std::to_string(tokens_) + " on",
                  "positions " + std::to_string(run.first) + " to " + std::to_string(run.last));
    }
    tokens_ = run.last;
  }
}

Layout Layout::contiguous(std::span<const std::int64_t> lengths) {
  std::vector<std::vector<Run>> runs;
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    require_tokens(length);
    require_tokens(first + length);
    runs.push_back({{first, first + length}});
    first += length;
  }
  return Layout(std::move(runs));
}

Layout Layout::even(std::int64_t tokens, int ranks) {
  require_ranks(ranks);
  require_tokens(tokens);
  std::vector<std::vector<Run>> runs;
  for (int r = 0; r < ranks; ++r) runs.push_back({share(tokens, ranks, r)});
  return Layout(std::move(runs));
}

Layout Layout::zigzag(std::int64_t tokens, int ranks) {
  require_ranks(ranks);
  require_tokens(tokens);
  std::vector<std::vector<Run>> runs;
  const std::int64_t pieces = 2 * static_cast<std::int64_t>(ranks);
  for (int r = 0; r < ranks; ++r) runs.push_back({share(tokens, pieces, r), share(tokens, pieces, pieces - 1 - r)});
  return Layout(std::move(runs));
}

const std::vector<Run>& Layout::runs(int rank) const {
  if (rank >= 0 && rank < ranks()) return runs_[static_cast<std::size_t>(rank)];
  if (!defined()) throw Error(Error::Kind::argument, "layout", "a layout of ranks", "none, or one that was moved from");
  throw Error(Error::Kind::argument, "layout", "a rank from 0 to " + std::to_string(ranks() - 1), std::to_string(rank));
}

std::int64_t Layout::rows(int rank) const {
  std::int64_t sum = 0;
  for (const Run& run : runs(rank)) sum += run.length();
  return sum;
}

Tensor Layout::take(const Tensor& whole, std::int64_t dim, int rank) const {
  Shape shape = whole.shape();
  whole.size(dim);  // which knows what dimensions there are
  shape[static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(whole.rank()) : dim)] = rows(rank);
  Tensor own = Tensor::empty(shape, whole.dtype());
  std::int64_t at = 0;
  for (const Run& run : runs(rank)) {
    own.slice(dim, at, at + run.length()).copy_from(whole.slice(dim, run.first, run.last));
    at += run.length();
  }
  return own;
}

void Layout::put(const Tensor& rows, const Tensor& whole, std::int64_t dim, int rank) const {
  std::int64_t at = 0;
  for (const Run& run : runs(rank)) {
    whole.slice(dim, run.first, run.last).copy_from(rows.slice(dim, at, at + run.length()));
    at += run.length();
  }
}

}  // namespace attn::distributed
