// c = a · b + bias: what a dense product is handed.
#pragma once

#include <cstdint>

#include "kernels/problem.hpp"

namespace attn::kernels {

// c (m, n), a (m, k), b (k, n), bias (n) or null, all of one element, no size zero. Steps count elements; one of a's
// two is 1, and one of b's.
struct Product {
  std::int64_t m, n, k;
  const void* a;
  std::int64_t a_row, a_depth;
  const void* b;
  std::int64_t b_depth, b_column;
  const void* bias;
  void* c;
  std::int64_t c_row;
  Element element = Element::f32;
  Precision precision = Precision::highest;  // of float32
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
