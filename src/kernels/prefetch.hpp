// Rows of the task that comes next, on their way to L2 while this one multiplies: packing would wait for memory. Lines
// of heads side by side lie far apart, where the processor foresees none of them.
#pragma once

#include "kernels/attention/query_tile.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class RowsAhead {
 public:
  // Rows [first, first + count) of a head, `width` numbers each.
  void add(const Problem& p, const Rows& rows, std::int64_t batch, std::int64_t head, std::int64_t first,
           std::int64_t count, std::int64_t width) {
    const std::int64_t bytes = element_bytes(p.element);
    runs_[end_++] = {static_cast<const char*>(row(rows, p.element, batch, head, first)), rows.token * bytes, count,
                     ceil_div(width * bytes, kLineBytes)};
    left_ += count * runs_[end_ - 1].lines;
  }

  // All of them in about so many calls.
  void spread_over(std::int64_t calls) { lines_a_call_ = ceil_div(left_, calls > 0 ? calls : 1); }

  __attribute__((always_inline)) void operator()() {
    if (left_ > 0) fetch();
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;

  struct Run {
    const char* at;
    std::int64_t step, rows, lines;
  };

  void fetch() {
    for (std::int64_t n = 0; n < lines_a_call_ && left_ > 0; ++n, --left_) {
      Run& run = runs_[begin_];
      __builtin_prefetch(run.at + line_ * kLineBytes, 0, 2);
      if (++line_ < run.lines) continue;
      line_ = 0;
      run.at += run.step;
      if (--run.rows == 0) ++begin_;
    }
  }

  Run runs_[5];
  int begin_ = 0, end_ = 0;
  std::int64_t left_ = 0, line_ = 0, lines_a_call_ = 1;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
