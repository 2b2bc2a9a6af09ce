// The arguments of a product with a quantised matrix, and the functions of an instruction set that compute it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

struct Kernels;

// Whether rows may be in bytes: a page has float32 alone, and leaves out what multiplies bytes.
#if defined(ATTN_FLOAT32_ALONE)
constexpr bool kRowsInBytes = false;
#else
constexpr bool kRowsInBytes = true;
#endif

// Rows in bytes, by blocks of a quantised matrix: a number is about byte · scale of its block.
struct QuantizedRows {
  std::int8_t* bytes;    // (m, k)
  float* scales;         // (m, blocks)
  std::int32_t* starts;  // a block's sum of bytes by what is subtracted from all codes
  float* sums;           // a block's sum of bytes, by its scale
};

// c (m, n) = a (m, k) · weightᵀ (k, n) + bias of a weight in the form of QuantizedMatrix, whose fields these are; of
// a's rows in float32, or in bytes where `a` is null.
struct QuantizedProduct {
  std::int64_t m, n, k;
  int bits, block;
  bool nested, has_least;
  int zero;
  std::uint8_t levels[16];
  const std::uint8_t *codes, *scales;
  std::int64_t code_stride, scale_stride;  // bytes of a group
  std::int64_t task_outputs;               // of a task, a multiple of 32
  const float* a;
  std::int64_t a_row;
  QuantizedRows x;
  const float* bias;  // (n) or null
  float* c;
  std::int64_t c_row;
};

struct QuantizedKernel {
  std::int64_t (*tasks)(const QuantizedProduct&);
  bool (*run)(const QuantizedProduct&, std::int64_t task, void* scratch);  // false when a result left the range
  void (*round_row)(const QuantizedProduct&, const float* from, std::int64_t row, const QuantizedRows&);
  std::size_t scratch;  // bytes
};

}  // namespace attn::kernels
