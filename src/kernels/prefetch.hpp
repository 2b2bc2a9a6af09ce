// Brings what will be read soon to a cache while something else is computed: some lines with every call, for many at
// once would hold up the loads between them.
#pragma once

#include "kernels/rounding.hpp"
#include "kernels/simd/elements.hpp"
#include "kernels/simd/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kCacheLine = 64;  // bytes

// Lines on their way to L1 are fewer than memory's latency asks for: what comes from memory goes to L2.
enum class Cache { l1, l1_to_write, l2 };

template <Cache kTo>
inline __attribute__((always_inline)) void prefetch(const void* line) {
  if constexpr (kTo == Cache::l2) {
    __builtin_prefetch(line, 0, 2);
  } else if constexpr (kTo == Cache::l1_to_write) {
    __builtin_prefetch(line, 1);
  } else {
    __builtin_prefetch(line);
  }
}

// The line of a row that holds byte `at`, if it begins there; null is no row.
inline __attribute__((always_inline)) void prefetch_at(const char* row, std::int64_t at) {
  if (row && at % kCacheLine == 0) prefetch<Cache::l2>(row + at);
}

// Ranges of memory side by side: so many lines of each with every call.
template <int kRanges, Cache kTo>
class PrefetchRanges {
 public:
  PrefetchRanges() = default;
  explicit PrefetchRanges(std::int64_t lines_a_call) : lines_(lines_a_call) {}

  void set(int i, const void* begin, std::int64_t bytes) {
    at_[i] = static_cast<const char*>(begin), end_[i] = at_[i] + bytes;
  }

  __attribute__((always_inline)) void operator()() {
    ATTN_UNROLL for (int i = 0; i < kRanges; ++i) {
      for (std::int64_t n = 0; n < lines_ && at_[i] < end_[i]; ++n, at_[i] += kCacheLine) prefetch<kTo>(at_[i]);
    }
  }

 private:
  const char *at_[kRanges] = {}, *end_[kRanges] = {};
  std::int64_t lines_ = 0;
};

// Rows of heads, one run of rows after the other, spread over a number of calls. Lines of heads side by side lie far
// apart in memory, where the processor foresees none of them.
class PrefetchRows {
 public:
  // Rows [first, first + count) of a head, `width` numbers each.
  void add(const Problem& p, const Rows& rows, std::int64_t batch, std::int64_t head, std::int64_t first,
           std::int64_t count, std::int64_t width) {
    const std::int64_t bytes = element_bytes(p.element);
    add(static_cast<const char*>(row(rows, p.element, batch, head, first)), rows.token * bytes, count, width * bytes);
  }

  // `count` rows of so many bytes, `step` bytes apart. Past kMostRuns runs there is no room.
  void add(const char* first, std::int64_t step, std::int64_t count, std::int64_t bytes) {
    if (count <= 0 || end_ == kMostRuns) return;
    runs_[end_++] = {first, step, count, ceil_div(bytes, kCacheLine)};
    left_ += count * runs_[end_ - 1].lines;
  }

  // All of them in about so many calls.
  void spread_over(std::int64_t calls) { lines_a_call_ = ceil_div(left_, calls > 0 ? calls : 1); }

  __attribute__((always_inline)) void operator()() {
    if (left_ > 0) fetch();
  }

 private:
  static constexpr int kMostRuns = 16;

  struct Run {
    const char* at;
    std::int64_t step, rows, lines;
  };

  __attribute__((always_inline)) void fetch() {
    for (std::int64_t n = 0; n < lines_a_call_ && left_ > 0; ++n, --left_) {
      Run& run = runs_[begin_];
      prefetch<Cache::l2>(run.at + line_ * kCacheLine);
      if (++line_ < run.lines) continue;
      line_ = 0;
      run.at += run.step;
      if (--run.rows == 0) ++begin_;
    }
  }

  Run runs_[kMostRuns];
  int begin_ = 0, end_ = 0;
  std::int64_t left_ = 0, line_ = 0, lines_a_call_ = 1;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
