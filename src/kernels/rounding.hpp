// How sizes are cut. Internal to each file that includes it: a unit compiled for one instruction set must not lend its
// copy to the rest of the program.
#pragma once

#include <cstdint>

namespace attn::kernels {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return ceil_div(n, step) * step; }
constexpr std::int64_t least_of(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

}  // namespace
}  // namespace attn::kernels
