// The arguments of what a language model computes between its products, row by row or element by element.
#pragma once

#include <cstdint>

#include "kernels/problem.hpp"

namespace attn::kernels {

// y = (x - mean) · rstd · weight + bias on rows of `width`, rows one after the other.
struct LayerNormRows {
  std::int64_t rows, width;
  const float *x, *weight, *bias;
  float epsilon;
  Element element;  // of y: f32 or bf16
  void* y;
  float *mean, *rstd;  // one a row
};

struct LayerNormGradient {
  std::int64_t rows, width;
  const float *dy, *x, *weight, *mean, *rstd;
  const float* residual;  // null, or what dx has beside
  float* dx;
  float *d_weight, *d_bias;  // (width), added to
};

// y = x · rstd · (added + weight) on rows of `width`, rows one after the other.
struct RmsNormRows {
  std::int64_t rows, width;
  const float *x, *weight;
  float added;  // 0, or Gemma's 1
  float epsilon;
  bool rounds_first;  // to y's dtype, before the weight multiplies
  Element element;    // of y: f32 or bf16
  void* y;
  float* rstd;  // one a row
};

struct RmsNormGradient {
  std::int64_t rows, width;
  const float *dy, *x, *weight, *rstd;
  float added;
  const float* residual;  // null, or what dx has beside
  float* dx;
  float* d_weight;  // (width), added to
};

// out = activation(gate) · up; or the gradients of gate (out) and up for dy. n elements, all f32 or all bf16.
enum class Activation { silu, gelu_tanh, gelu, sigmoid };
struct GatedRun {
  Activation activation;
  Element element;
  std::int64_t n;
  const void *gate, *up, *dy;
  void *out, *d_up;
};

// y = gelu(x), or dx of dy and x: n elements, all f32 or all bf16.
struct GeluRun {
  bool tanh_form;  // or exact
  Element element;
  std::int64_t n;
  const void *dy, *x;  // dy of the gradient
  void* out;
};

// One row of logits.
struct LogitsRow {
  std::int64_t n, target;
  const float* logits;
  float* gradient;  // null, or where factor · (softmax - onehot) goes; may be `logits`
  float factor;
};

struct AdamWStep {
  std::int64_t n;
  float *value, *mean, *square;  // the weights; running means of the gradient and of its square
  const float* grad;
  float grad_factor;  // of clipping
  float beta1, beta2;
  float decay;          // 1 - rate · weight_decay
  float rate;           // rate / (1 - beta1^step)
  float square_factor;  // 1 / √(1 - beta2^step)
  float epsilon;
};

}  // namespace attn::kernels
