// The AMX tile registers in plain code, for tests on processors that have none: same shapes, same order of sums,
// subnormal numbers taken for zero.
#pragma once

#include <cstdint>

#include "kernels/simd/elements.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// One register file a thread: what runs tasks makes it and ends it.
struct TileRegisters {
  bool configured = false;
  std::uint32_t tile[8][16][16];
};
inline thread_local TileRegisters registers;

// Using a tile that was not configured faults, as on a processor.
inline TileRegisters& configured() {
  if (!registers.configured) __builtin_trap();
  return registers;
}

struct Session {
  Session() {
    registers.configured = true;
    __builtin_memset(registers.tile, 0, sizeof registers.tile);
  }
  ~Session() { registers.configured = false; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

template <int Tile>
inline void tile_zero() {
  __builtin_memset(configured().tile[Tile], 0, 1024);
}

template <int Tile>
inline void tile_load(const void* from, std::int64_t step) {
  for (int i = 0; i < 16; ++i) {
    __builtin_memcpy(configured().tile[Tile][i], static_cast<const char*>(from) + i * step, 64);
  }
}

template <int Tile>
inline void tile_stream(const void* from, std::int64_t step) {
  tile_load<Tile>(from, step);
}

template <int Tile>
inline void tile_store(void* to, std::int64_t step) {
  for (int i = 0; i < 16; ++i) __builtin_memcpy(static_cast<char*>(to) + i * step, configured().tile[Tile][i], 64);
}

inline float normal_or_zero(float x) { return (float_to_bits(x) & 0x7f800000u) ? x : x * 0; }

inline float low_half(std::uint32_t pair) { return normal_or_zero(bits_to_float(pair << 16)); }
inline float high_half(std::uint32_t pair) { return normal_or_zero(bits_to_float(pair & 0xffff0000u)); }

// The first and the second numbers of the 16 pairs are summed apart, then together, then added to what was there.
template <int Sum, int A, int B>
inline void tile_multiply() {
  auto& tile = configured().tile;
  for (int i = 0; i < 16; ++i) {
    float first[16] = {}, second[16] = {};
    for (int k = 0; k < 16; ++k) {
      const float a_first = low_half(tile[A][i][k]), a_second = high_half(tile[A][i][k]);
      for (int j = 0; j < 16; ++j) {
        first[j] = normal_or_zero(__builtin_fmaf(a_first, low_half(tile[B][k][j]), first[j]));
        second[j] = normal_or_zero(__builtin_fmaf(a_second, high_half(tile[B][k][j]), second[j]));
      }
    }
    for (int j = 0; j < 16; ++j) {
      const float before = normal_or_zero(bits_to_float(tile[Sum][i][j]));
      tile[Sum][i][j] = float_to_bits(normal_or_zero(before + normal_or_zero(first[j] + second[j])));
    }
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
