#include "common/processor.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#ifdef __linux__
#include <sched.h>
#endif

namespace attn::tool {
namespace {

using Features = std::vector<std::pair<std::string, bool>>;

// /proc/cpuinfo's line; Arm's has none.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

// The processors that this process may run on, which a container may have fewer of.
unsigned usable_threads() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

#if defined(__x86_64__) || defined(__i386__)

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(unsigned leaf, unsigned subleaf) {
  Leaf r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool bit(unsigned word, int index) { return (word >> index & 1u) != 0; }

// Which register sets the system saves (XCR0); 0 when the processor cannot tell.
std::uint64_t saved_registers() {
  constexpr int osxsave = 27;
  if (!bit(cpuid(1, 0).ecx, osxsave)) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// Bit numbers: Intel SDM volume 2, CPUID.
Features features() {
  const Leaf basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
  const std::uint64_t saved = saved_registers();
  const auto saves = [saved](std::uint64_t mask) { return (saved & mask) == mask; };
  const bool ymm = saves(0x6), zmm = saves(0xe6), tiles = saves(0x60000);
  return {{"sse4.2", bit(basic.ecx, 20)},
          {"avx", ymm && bit(basic.ecx, 28)},
          {"f16c", ymm && bit(basic.ecx, 29)},
          {"fma", ymm && bit(basic.ecx, 12)},
          {"avx2", ymm && bit(extended.ebx, 5)},
          {"avx_vnni", ymm && bit(more.eax, 4)},
          {"avx512f", zmm && bit(extended.ebx, 16)},
          {"avx512bw", zmm && bit(extended.ebx, 30)},
          {"avx512vl", zmm && bit(extended.ebx, 31)},
          {"avx512_vnni", zmm && bit(extended.ecx, 11)},
          {"avx512_bf16", zmm && bit(more.eax, 5)},
          {"avx512_fp16", zmm && bit(extended.edx, 23)},
          {"amx_tile", tiles && bit(extended.edx, 24)},
          {"amx_bf16", tiles && bit(extended.edx, 22)},
          {"amx_int8", tiles && bit(extended.edx, 25)}};
}

#elif defined(__aarch64__) && defined(__linux__)

// Bit numbers: Linux, arch/arm64 elf_hwcaps.
Features features() {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  const auto bit = [](unsigned long word, int index) { return (word >> index & 1ul) != 0; };
  return {{"neon", bit(first, 1)},   {"neon_fp16", bit(first, 10)}, {"dotprod", bit(first, 20)},
          {"sve", bit(first, 22)},   {"sve2", bit(second, 1)},      {"i8mm", bit(second, 13)},
          {"bf16", bit(second, 14)}, {"sme", bit(second, 23)}};
}

#elif defined(__aarch64__)
Features features() { return {{"neon", true}}; }
#else
Features features() { return {}; }
#endif

}  // namespace

Processor this_processor() { return {processor_name(), features(), usable_threads()}; }

}  // namespace attn::tool
