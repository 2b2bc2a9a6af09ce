// The peak of bf16 products out of registers, as simd/limits.hpp has it for float32.
#include "kernels/amx/multiply.hpp"

namespace attn::kernels::ATTN_UNIT {

double multiply_add_bf16(std::int64_t rounds, float* sink);

// Four sums, as many as the matrix core has: enough to hide a product's latency.
double multiply_add_bf16(std::int64_t rounds, float* sink) {
  [[maybe_unused]] const Session session;
  tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  tile_zero<4>(), tile_zero<5>(), tile_zero<6>(), tile_zero<7>();
  for (std::int64_t round = 0; round < rounds; ++round) {
    tile_multiply<0, 4, 6>(), tile_multiply<1, 4, 7>(), tile_multiply<2, 5, 6>(), tile_multiply<3, 5, 7>();
  }
  *sink += 1e-30f;
  constexpr double kOperations = 4 * 16 * 16 * 32 * 2;
  return kOperations * static_cast<double>(rounds);
}

}  // namespace attn::kernels::ATTN_UNIT
