// Numbers below 2^-126 in a task of the kernels.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace attn {

// While one is there and `on`, its thread takes such numbers for zero: x86 processors take a hundred times as long for
// them. Elsewhere they cost what others do, and stay what they are.
class ZeroSubnormals {
 public:
#if defined(__SSE__)
  explicit ZeroSubnormals(bool on) : before_(_mm_getcsr()) {
    if (on) _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
  }
  ~ZeroSubnormals() { _mm_setcsr(before_); }
#else
  explicit ZeroSubnormals(bool) {}
#endif
  ZeroSubnormals(const ZeroSubnormals&) = delete;

 private:
#if defined(__SSE__)
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned before_;
#endif
};

}  // namespace attn
