#include "kernels/processor.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace attn::kernels {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}

bool bit(unsigned word, int index) { return (word >> index & 1u) != 0; }

// The system saves the tile registers (state components 17 and 18) on a switch of tasks, and hands them out on
// request only: they make a thread's state 8 KiB larger.
bool tiles_granted() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && bit(cpuid(1, 0).c, 29); }

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}

bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512vnni") && bit(cpuid(7, 1).a, 5); }

bool has_avx_vnni() { return bit(cpuid(7, 1).a, 4); }

bool has_amx_bf16() {
  const unsigned features = cpuid(7, 0).d;
  constexpr int kAmxBf16 = 22, kAmxTile = 24, kAmxInt8 = 25;  // no processor has the first without the last
  static const bool usable = has_avx512bf16() && bit(features, kAmxBf16) && bit(features, kAmxTile) &&
                             bit(features, kAmxInt8) && tiles_granted();
  return usable;
}

}  // namespace attn::kernels
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

namespace attn::kernels {

bool has_dot_product() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }

}  // namespace attn::kernels
#elif defined(__aarch64__) && defined(__APPLE__)
namespace attn::kernels {

bool has_dot_product() { return true; }  // all of theirs

}  // namespace attn::kernels
#elif defined(__aarch64__)
namespace attn::kernels {

bool has_dot_product() { return false; }

}  // namespace attn::kernels
#endif
