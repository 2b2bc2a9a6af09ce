// Rows of results, to memory. What no cache will hold until it is read goes past them: a line that is stored to is read
// first, which takes as long as any other read, and these are written whole.
#pragma once

#include "kernels/simd/elements.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kCachedBytes = 4 << 20;  // of results that still may be in a cache when they are read

class RowWriter {
 public:
  // Writes `numbers` in all; `finite`, if given, becomes false once one of them is not finite as it is stored.
  RowWriter(Element element, std::int64_t numbers, bool* finite)
      : element_(element),
        streams_(kStreams && element == Element::f32 && numbers * element_bytes(element) >= kCachedBytes),
        finite_(finite) {}
  ~RowWriter() { finish(); }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

  void operator()(const float* line, void* out, std::int64_t width) {
    const bool streams = streams_ && width % kLanes == 0 && reinterpret_cast<std::uintptr_t>(out) % sizeof(Vec) == 0;
    if (finite_) note(line, width);
    if (!streams) return narrow(element_, line, out, width);
    for (std::int64_t c = 0; c < width; c += kLanes) stream(static_cast<float*>(out) + c, load(line + c));
  }

  // Something beside the rows is not finite.
  void tell() const {
    if (finite_) __atomic_store_n(finite_, false, __ATOMIC_RELAXED);
  }

 private:
  void note(const float* line, std::int64_t width) {
    for (std::int64_t c = 0; c < width; c += kLanes) {
      const Vec x = load_columns(line + c, width - c);
      const VecU magnitude = reinterpret_cast<VecU>(x) & 0x7fffffffu;  // NaN's is above all numbers'
      largest_ = magnitude > largest_ ? magnitude : largest_;
    }
  }

#if defined(__AVX512F__)
  static constexpr bool kStreams = true;
  static __attribute__((always_inline)) void stream(float* to, Vec x) {
    _mm512_stream_ps(to, reinterpret_cast<__m512>(x));
  }
#else
  static constexpr bool kStreams = false;
  static void stream(float* to, Vec x) { store(to, x); }
#endif

  void finish() const {
#if defined(__AVX512F__)
    if (streams_) _mm_sfence();  // for whoever this thread tells that it is done
#endif
    const VecU fits = largest_ < float_to_bits(end_of_range(element_));
    if (any(~reinterpret_cast<VecI>(fits))) tell();
  }

  Element element_;
  bool streams_;
  bool* finite_;
  VecU largest_{};
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
