// The AMX tile registers, all 16 rows of 64 bytes. Written as instructions, not intrinsics: those of GCC 12 do not
// tell the compiler that they read and write memory.
#pragma once

#include <cstdint>

namespace attn::kernels::ATTN_UNIT {
namespace {

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

// The tiles are configured for as long as it lives.
struct Session {
  Session() {
    const TileShapes shapes;
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  ~Session() { asm volatile("tilerelease"); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

template <int Tile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
}

// 16 rows of 64 bytes, `step` bytes apart.
template <int Tile>
inline void tile_load(const void* from, std::int64_t step) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step), "i"(Tile) : "memory");
}

// The same for what is not needed again soon: it leaves in L1 what is there.
template <int Tile>
inline void tile_stream(const void* from, std::int64_t step) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step), "i"(Tile) : "memory");
}

template <int Tile>
inline void tile_store(void* to, std::int64_t step) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(step), "i"(Tile) : "memory");
}

// Sum (16, 16) += A (16, 16 pairs) · B (16 pairs, 16).
template <int Sum, int A, int B>
inline void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(A), "i"(B));
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
