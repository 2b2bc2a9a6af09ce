// Rows of a table by token id, and their gradient.
#pragma once

#include "attn/module.hpp"

namespace attn {

// Throws Error unless ids are int64 (t) or (b, t) in [0, vocab), t from 1 to `longest`.
void check_ids(const Tensor& ids, std::int64_t vocab, std::int64_t longest);

// scale · tokens[ids[b, i]] → (b, t, width) in float32; the scale is rounded to tokens' floating dtype.
Tensor embed(const Tensor& ids, const Parameter& tokens, double scale);

// x (b, t, width) += positions[places[i]]. places: int64 (t), or (b, t) where items have places of their own; undefined
// where place i is i.
void add_positions(const Tensor& x, const Parameter& positions, const Tensor& places);

// A table's gradient, zeros at first; undefined where it has no value or requires none.
Tensor table_gradient(Parameter& table);
// Adds dx (b, t, width) to the gradients of the rows that embed() and add_positions() took, of those that are defined.
void embed_backward(const Tensor& dx, const Tensor& ids, const Tensor& d_tokens, const Tensor& d_positions,
                    const Tensor& places = {});

}  // namespace attn
