// What will be read soon, on its way to L2.
#pragma once

#include "kernels/attention/query_tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// To L2: lines on their way to L1 are fewer than memory's latency asks for.
inline __attribute__((always_inline)) void prefetch(const char* row, std::int64_t lines) {
  for (std::int64_t i = 0; i < lines; ++i) __builtin_prefetch(row + i * 64, 0, 2);
}

// Keys and values of a block: a row of each with each call, so that no load has to wait for them.
class Ahead {
 public:
  explicit Ahead(const Problem& p)
      : bytes_(element_bytes(p.element)),
        key_lines_((p.d * bytes_ + 63) / 64),
        value_lines_((p.dv * bytes_ + 63) / 64) {}

  void begin(const Problem& p, const Span& span, std::int64_t first, std::int64_t most) {
    const std::int64_t left = p.tk - first;
    left_ = left < 0 ? 0 : left < most ? left : most;
    if (left_ == 0) return;
    key_ = static_cast<const char*>(row(p.k, p.element, span.batch, span.key_head, first));
    value_ = static_cast<const char*>(row(p.v, p.element, span.batch, span.key_head, first));
    key_step_ = p.k.token * bytes_, value_step_ = p.v.token * bytes_;
  }

  __attribute__((always_inline)) void operator()() {
    if (left_ == 0) return;
    --left_;
    prefetch(key_, key_lines_), prefetch(value_, value_lines_);
    key_ += key_step_, value_ += value_step_;
  }

 private:
  std::int64_t bytes_, key_lines_, value_lines_, key_step_ = 0, value_step_ = 0, left_ = 0;
  const char *key_ = nullptr, *value_ = nullptr;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
