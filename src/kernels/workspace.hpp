// How sizes are cut: a task's scratch is one allocation, in parts.
#pragma once

#include <cstdint>

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return ceil_div(n, step) * step; }

// Hands out parts of one allocation, each a multiple of 64 bytes; with a null base it only counts.
struct Carver {
  float* base;
  std::int64_t used = 0;

  float* operator()(std::int64_t floats) {
    float* part = base ? base + used : nullptr;
    used += (floats + 15) / 16 * 16;
    return part;
  }
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
