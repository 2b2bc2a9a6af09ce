// Checks once what attention() takes, and finds the sizes that follow from it.
#pragma once

#include "attn/attention.hpp"

namespace attn {

// The sizes of one call, and the scale of its scores. hq is a multiple of hkv.
struct Sizes {
  std::int64_t batch, hq, hkv, tq, tk, d, dv;
  double scale;

  Shape scores_shape() const { return {batch, hq, tq, tk}; }
  Shape output_shape() const { return {batch, hq, tq, dv}; }
};

// Throws Error naming the first thing that does not fit.
Sizes validate(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);

// The part of it that asks for no more than the batch, tq and tk: windows, lengths and where sequences start.
void check_positions(const Mask& mask, const Sizes& p);

// Keys or values to validate() of which only the shape counts.
Tensor stand_in(const Shape& shape, DType dtype);

// Returns the dtype of the output: what the options say, or q's.
inline DType output_dtype(const Tensor& q, const AttentionOptions& options) {
  return options.output_dtype.value_or(q.dtype());
}

// (b, hq, blocks of queries, blocks of keys), of a mask that has blocks.
Shape block_shape(const Sizes& p, const Mask& mask);

// `tensor` fits by broadcasting to `shape`.
bool broadcasts_to(const Shape& tensor, const Shape& shape);

}  // namespace attn
