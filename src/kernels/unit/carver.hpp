// A task's scratch is one allocation, cut into parts.
#pragma once

#include <cstdint>

namespace attn::kernels::ATTN_UNIT {
namespace {

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
