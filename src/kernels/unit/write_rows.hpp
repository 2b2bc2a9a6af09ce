// Rows of results, to memory. What no cache will hold until it is read goes past them: a line that is stored to is read
// first, which takes as long as any other read, and these are written whole.
#pragma once

#include "kernels/unit/elements.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kCachedBytes = 4 << 20;  // of results that still may be in a cache when they are read

class RowWriter {
 public:
  // Of `numbers` in all.
  RowWriter(Element element, std::int64_t numbers)
      : element_(element), streams_(element == Element::f32 && numbers * element_bytes(element) >= kCachedBytes) {}
  ~RowWriter() { finish(); }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

  void operator()(const float* line, void* out, std::int64_t width) const {
    constexpr std::int64_t kBytes = sizeof(Vec);
    if (!streams_ || width % kLanes != 0 || reinterpret_cast<std::uintptr_t>(out) % kBytes != 0) {
      return narrow(element_, line, out, width);
    }
    auto* to = static_cast<float*>(out);
    for (std::int64_t c = 0; c < width; c += kLanes) stream(to + c, load(line + c));
  }

 private:
  static __attribute__((always_inline)) void stream(float* to, Vec v) {
#if defined(__AVX512F__) && !defined(__clang__)
    __builtin_ia32_movntps512(to, v);
#elif defined(__clang__)
    __builtin_nontemporal_store(v, reinterpret_cast<Vec*>(to));
#else
    store(to, v);
#endif
  }

  // Other threads see what was streamed before they see what this one does next.
  void finish() const {
#if defined(__AVX512F__)
    if (streams_) __builtin_ia32_sfence();
#endif
  }

  Element element_;
  bool streams_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
