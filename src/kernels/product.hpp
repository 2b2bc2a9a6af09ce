// c = a · b + bias: what a dense product is handed.
#pragma once

#include <cstdint>

namespace attn::kernels {

// c (m, n), a (m, k), b (k, n), float32; steps count elements.
struct Product {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_row, a_depth;
  const float* b;
  std::int64_t b_depth, b_column;
  const float* bias;  // (n) or null
  float* c;
  std::int64_t c_row;
};

}  // namespace attn::kernels
