// A task's memory is one allocation, in parts.
#pragma once

#include <cstddef>

#include "kernels/rounding.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Hands out parts of one allocation, each a multiple of 64 bytes; with a null base it only counts.
struct Workspace {
  float* base;
  std::int64_t used = 0;

  float* operator()(std::int64_t floats) {
    float* part = base ? base + used : nullptr;
    used += round_up(floats, 16);
    return part;
  }

  std::size_t bytes() const { return static_cast<std::size_t>(used) * sizeof(float); }
};

// Returns the bytes that a T made with these arguments takes from a workspace.
template <class T, class... Args>
std::size_t bytes_of(const Args&... args) {
  Workspace count{nullptr};
  const T counted(args..., count);
  return count.bytes();
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
