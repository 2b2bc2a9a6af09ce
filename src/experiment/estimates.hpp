// Estimates what switching off each head does, by the gradient of one pass.
#pragma once

#include "attn/experiment.hpp"

namespace attn::experiment {

struct Estimates {
  double before = 0;
  Tensor after;  // float64 (layers, heads)
};
// Attribution patching (Nanda 2023): the measure of one pass, and to first order what it becomes as a head gives
// something else: before + Σ gradient · (what it gives then - what it gives). options.exact does not matter. Throws
// Error (argument) for edits and for layers that keep a state, and (dtype) for matrices in fewer than 16 bits.
Estimates estimated_effects(LanguageModel& model, const Tensor& ids, const EffectOptions& options);

}  // namespace attn::experiment
