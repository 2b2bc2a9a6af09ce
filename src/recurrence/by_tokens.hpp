// The reference: one head of linear_attention(), token by token in float64, and its gradient beside it.
#pragma once

#include <cstdint>

namespace attn::recurrence {

// Arrays are row-major: q, k (tokens, d_k), v (tokens, d_v), decay (tokens) or (tokens, d_k), states (d_k, d_v).
struct Head {
  std::int64_t tokens, d_k, d_v;
  bool delta;
  double scale;
  const double *q, *k, *v;
  const double* decay;  // null: 0
  bool by_channel;
  const double* beta;     // null: 1
  const double* initial;  // null: zeros
};

// Gradients are added to; null ones are not asked for.
struct HeadGradient {
  const double *d_output, *d_state;  // d_state null: zeros
  double *dq, *dk, *dv, *d_decay, *d_beta, *d_initial;
};

void forward_by_tokens(const Head& head, double* output, double* state);
void backward_by_tokens(const Head& head, const HeadGradient& gradient);

}  // namespace attn::recurrence
