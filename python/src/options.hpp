// The operator's keyword arguments beside its inputs, as AttentionOptions: what Python holds as attn._attn.Options.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "attn/attention.hpp"

namespace attn::python {

// These are the addresses of ScoreFunction's forward, backward, forward64, backward64 and user, and of where they write
// that they failed, or 0.
using Addresses = std::array<std::uintptr_t, 6>;

// A function of numba's cannot throw: it writes this where it raised an exception, as attn/_numba.py compiles it.
struct ScoreFailure {
  double raised = 0;
  double score, batch, head, query, key;
};

// Options, and the arrays behind their tensors. The holder of the GIL makes and destroys it.
struct Options {
  std::vector<Array> kept;
  AttentionOptions options;
  ScoreFailure* score_failure = nullptr;  // the score function's own; null where it tells of none

  // Undefined stays what is None: most calls give few of them.
  void take(Tensor& to, nb::handle object, const char* what, Framework from);
  // Integers, (b), or one of no dimensions, or Python's.
  void take_offset(Offset& to, nb::handle object, const char* what, Framework from);
  // False, True, or the numbers of some rows.
  void take_return_weights(nb::handle wanted, Framework from);
  // Throws an Error if the score function has raised an exception since the last time.
  void check_score_function() const;
};

// One call has arrays, and the options with those inputs among them that are no arrays of tokens.
struct Inputs {
  Array q, k, v;
  Options options;
};

// Takes (query, key, value, attn_mask, sinks, relative_bias), to which gradients flow. `op` names them in errors.
Inputs take_inputs(const nb::tuple& given, const Options& options, const char* op, Framework from);

// The options of one call with its attn_mask (by its dtype what is kept or what is added), sinks and relative_bias.
Options with_inputs(const Options& options, nb::handle attn_mask, nb::handle sinks, nb::handle relative_bias,
                    Framework from);

// Gradients of the six inputs; None for what is not there.
nb::tuple give_gradients(const AttentionGradient& grad, Framework framework);

// A floating dtype by its name. Throws Error (dtype) for another name.
std::optional<DType> optional_dtype(nb::handle object, const char* op, const char* what);

}  // namespace attn::python
