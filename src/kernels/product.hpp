// c = a · b + bias: what a dense product is handed.
#pragma once

#include <cstdint>

#include "kernels/problem.hpp"

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

// c (m, n) = a (m, k) · weightᵀ (k, n) + bias for few rows of a; depth has unit steps, the weight is f32 or bf16.
struct FewRows {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_row;
  Element element;
  const void* weight;
  std::int64_t weight_row;
  const float* bias;  // (n) or null
  float* c;
  std::int64_t c_row;
};

}  // namespace attn::kernels
