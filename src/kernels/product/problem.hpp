// c = a · b + bias + residual: what a dense product is handed.
#pragma once

#include <cstdint>

#include "kernels/problem.hpp"

namespace attn::kernels {

// c (m, n), a (m, k), b (k, n), bias (n) or null, `residual` (m, n) or null, no size zero. Steps count elements; one of
// a's two is 1, and one of b's. `residual` has c's rows, and may be c where that is float32.
struct Product {
  std::int64_t m, n, k;
  const void* a;
  std::int64_t a_row, a_depth;
  const void* b;
  std::int64_t b_depth, b_column;
  const float* bias;
  void* c;
  std::int64_t c_row;
  Element a_element = Element::f32, b_element = Element::f32, c_element = Element::f32;
  Precision precision = Precision::highest;  // of float32
  const float* residual = nullptr;
};

// Where a thread takes its next task from: its number, or -1 when none is left; `early`, while it still has one, also
// when others may soon want the rest.
struct TaskSource {
  std::int64_t (*take)(void* queue, bool early);
  void* queue;
};

// c (m, n) = a (m, k) · weightᵀ (k, n) + bias for few rows of a, which are float32 or were widened to it; depth has unit
// steps, the weight is f32, bf16 or i8.
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
  Element a_element = Element::f32;          // what a's rows were before
  Precision precision = Precision::highest;  // of float32
};

}  // namespace attn::kernels
