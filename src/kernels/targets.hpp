// Which instruction sets there are, and which one this processor gets.
#pragma once

#include <span>
#include <string_view>

#include "kernels/table.hpp"

namespace attn::kernels {

struct Target {
  std::string_view isa;  // "scalar", "avx2", "avx512", "avx512bf16", "amx" or "neon"
  const Kernels* kernels;
  bool supported;  // by this processor
};

// Those of this build, the fastest last. Each has every kernel: what avx512bf16 and amx do not improve, they take
// from avx512.
std::span<const Target> targets();

// The fastest supported one, or the one that the environment variable ATTN_FORCE_ISA names. Throws Error
// (argument) when that one is unknown, or not supported here.
const Kernels& active();

// From now on these, of a processor that has their instructions; null: as above, chosen anew. For tests, and not while
// other threads compute.
void use(const Kernels* kernels);

}  // namespace attn::kernels
