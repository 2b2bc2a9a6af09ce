// What a language model does between its products, row by row or element by element: what each is handed.
#pragma once

#include <cstdint>

namespace attn::kernels {

// y = (x - mean) · rstd · weight + bias on rows of `width`, rows one after the other.
struct LayerNormRows {
  std::int64_t rows, width;
  const float *x, *weight, *bias;
  float epsilon;
  float *y, *mean, *rstd;  // mean and rstd: one a row
};

struct LayerNormGradient {
  std::int64_t rows, width;
  const float *dy, *x, *weight, *mean, *rstd;
  float* dx;                 // added to
  float *d_weight, *d_bias;  // (width), added to
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
