#include "kernels/targets.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "attn/error.hpp"
#include "kernels/processor.hpp"

namespace attn::kernels {

extern const Kernels kernels_scalar;
#if defined(__x86_64__)
extern const Kernels kernels_avx2, kernels_avx512, kernels_avx512bf16, kernels_amx;
#elif defined(__aarch64__)
extern const Kernels kernels_neon;
#endif

namespace {

std::atomic<const Kernels*> in_use{nullptr};

std::string names(bool supported_only) {
  std::string text;
  for (const Target& target : targets()) {
    if (supported_only && !target.supported) continue;
    text.append(text.empty() ? "" : ", ").append(target.isa);
  }
  return text;
}

const Kernels& choose() {
  const char* forced = std::getenv("ATTN_FORCE_ISA");
  if (!forced || !*forced) {
    const Kernels* best = targets().front().kernels;
    for (const Target& target : targets()) best = target.supported ? target.kernels : best;
    return *best;
  }
  for (const Target& target : targets()) {
    if (target.isa != forced) continue;
    if (target.supported) return *target.kernels;
    throw Error(Error::Kind::argument, "ATTN_FORCE_ISA", "an instruction set of this processor: " + names(true),
                forced);
  }
  throw Error(Error::Kind::argument, "ATTN_FORCE_ISA", "one of " + names(false), forced);
}

}  // namespace

std::span<const Target> targets() {
#if defined(__x86_64__)
  static const std::array all {
    Target{"scalar", &kernels_scalar, true}, Target{"avx2", &kernels_avx2, has_avx2()},
        Target{"avx512", &kernels_avx512, has_avx512()}, Target{"avx512bf16", &kernels_avx512bf16, has_avx512bf16()},
#if defined(ATTN_HAS_AMX)
        Target {
      "amx", &kernels_amx, has_amx_bf16()
    }
#endif
  };
#elif defined(__aarch64__)
  static const std::array<Target, 2> all{{{"scalar", &kernels_scalar, true}, {"neon", &kernels_neon, true}}};
#else
  static const std::array<Target, 1> all{{{"scalar", &kernels_scalar, true}}};
#endif
  return all;
}

const Kernels& active() {
  const Kernels* kernels = in_use.load(std::memory_order_relaxed);
  if (!kernels) use(kernels = &choose());
  return *kernels;
}

void use(const Kernels* kernels) { in_use.store(kernels, std::memory_order_relaxed); }

}  // namespace attn::kernels
