// A model layer by layer: the steps of one layer at a time, for who cannot hold all of them.
#pragma once

#include <functional>
#include <set>

#include "attn/encoder.hpp"
#include "attn/language_model.hpp"
#include "attn/trace.hpp"

namespace attn {

// Is given layer i's steps, by the names that a trace of the whole model has, when they are all there.
using LayerSteps = std::function<void(std::size_t layer, const Trace& steps)>;

// The model reads token ids int64 (t), as its forward() does, without logits and without what a backward pass would
// need. Each layer's steps are freed before the next layer begins, and only layers in `wanted`, of all where it is
// empty, are given to `each`; the others are computed by the kernels. Throws Error as forward() does,
// and (argument) for a layer that is not there or without `each`.
void read_layers(LanguageModel& model, const Tensor& ids, const std::set<std::size_t>& wanted, const LayerSteps& each);
void read_layers(Encoder& encoder, const Tensor& ids, const std::set<std::size_t>& wanted, const LayerSteps& each);

}  // namespace attn
