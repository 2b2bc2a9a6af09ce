// Philox4x32-10 in every lane (Salmon, Moraes, Dror and Shaw 2011): the fused dropout's random numbers.
#pragma once

#include "kernels/simd/tile.hpp"
#include "kernels/simd/vector.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

using VecWide = std::uint64_t __attribute__((vector_size(kLanes * 4)));

struct Halves {
  VecU low, high;
};

// The 64-bit products of each lane: even and odd lanes by themselves.
inline __attribute__((always_inline)) Halves multiply(VecU v, std::uint32_t factor) {
  const VecWide pairs = reinterpret_cast<VecWide>(v), low_bits = (pairs - pairs) + 0xffffffffu;
  const VecWide even = (pairs & low_bits) * factor, odd = (pairs >> 32) * factor;
  return {reinterpret_cast<VecU>((even & low_bits) | (odd << 32)),
          reinterpret_cast<VecU>((even >> 32) | (odd & ~low_bits))};
}

// counter becomes four random numbers a lane.
inline __attribute__((always_inline)) void philox(VecU (&counter)[4], std::uint64_t key) {
  auto key_low = static_cast<std::uint32_t>(key), key_high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Halves a = multiply(counter[0], 0xD2511F53u), b = multiply(counter[2], 0xCD9E8D57u);
    counter[0] = b.high ^ counter[1] ^ key_low, counter[1] = b.low;
    counter[2] = a.high ^ counter[3] ^ key_high, counter[3] = a.low;
    key_low += 0x9E3779B9u, key_high += 0xBB67AE85u;
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
