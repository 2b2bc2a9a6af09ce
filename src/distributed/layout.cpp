#include <algorithm>

#include "attn/distributed.hpp"
#include "attn/error.hpp"

namespace attn::distributed {
namespace {

// Piece i of `pieces` even ones.
Run share(std::int64_t tokens, std::int64_t pieces, std::int64_t i) {
  return {tokens / pieces * i + std::min(i, tokens % pieces),
          tokens / pieces * (i + 1) + std::min(i + 1, tokens % pieces)};
}

void require_ranks(int ranks) {
  if (ranks < 1) throw Error(Error::Kind::argument, "layout", "at least one rank", std::to_string(ranks));
}

}  // namespace

Layout::Layout(std::vector<std::vector<Run>> runs) : runs_(std::move(runs)) {
  require_ranks(ranks());
  std::vector<Run> all;
  for (std::vector<Run>& own : runs_) {
    std::erase_if(own, [](const Run& run) { return run.first == run.last; });
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  for (const Run& run : all) {
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
    runs.push_back({{first, first + length}});
    first += length;
  }
  return Layout(std::move(runs));
}

Layout Layout::even(std::int64_t tokens, int ranks) {
  require_ranks(ranks);
  std::vector<std::vector<Run>> runs;
  for (int r = 0; r < ranks; ++r) runs.push_back({share(tokens, ranks, r)});
  return Layout(std::move(runs));
}

Layout Layout::zigzag(std::int64_t tokens, int ranks) {
  require_ranks(ranks);
  std::vector<std::vector<Run>> runs;
  const std::int64_t pieces = 2 * static_cast<std::int64_t>(ranks);
  for (int r = 0; r < ranks; ++r) runs.push_back({share(tokens, pieces, r), share(tokens, pieces, pieces - 1 - r)});
  return Layout(std::move(runs));
}

std::int64_t Layout::rows(int rank) const {
  std::int64_t sum = 0;
  for (const Run& run : runs(rank)) sum += run.length();
  return sum;
}

Tensor Layout::take(const Tensor& whole, std::int64_t dim, int rank) const {
  Shape shape = whole.shape();
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
