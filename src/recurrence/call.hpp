// A call of linear_attention(): its sizes, checked, its sequences, and which heads belong together.
#pragma once

#include <vector>

#include "attn/linear_attention.hpp"

namespace attn::recurrence {

struct Sizes {
  std::int64_t batch, hq, hk, hv, tokens, d_k, d_v;
  std::int64_t states;  // of each value head
  std::int64_t outputs() const { return hq > hv ? hq : hv; }
  Shape output_shape() const { return {batch, outputs(), tokens, d_v}; }
  Shape state_shape() const { return {states, hv, d_k, d_v}; }
};

// Throws Error (argument, shape, dtype) unless everything fits; `op` names the function that was called.
Sizes validate(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
               const LinearAttentionOptions& options);
void validate_gradient(const Tensor& d_output, const Tensor& d_state, const Sizes& sizes);

// Tokens [first, first + tokens) of a batch item, with a state of its own.
struct Sequence {
  std::int64_t batch, first, tokens, state;
};
std::vector<Sequence> sequences(const Sizes& sizes, const LinearAttentionOptions& options);

// The head among `few` that belongs to head i of `many`, a multiple of few.
std::int64_t head_of(HeadMap map, std::int64_t i, std::int64_t many, std::int64_t few);

// A state is computed once for each head that reads it: output head `output`.
struct Read {
  std::int64_t q, k, state, output;
};
std::vector<Read> reads_of(const Sizes& sizes, HeadMap map, std::int64_t state);

// The dtype of states, and of the gradients of decay, beta and initial_state.
DType state_dtype(DType dtype);

// In double for any element type of the options; 1/sqrt(d_k) unless given.
double scale_of(const LinearAttentionOptions& options, std::int64_t d_k);

}  // namespace attn::recurrence
