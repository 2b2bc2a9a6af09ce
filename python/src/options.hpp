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

// Of ScoreFunction's forward, backward, forward64, backward64 and user.
using Addresses = std::array<std::uintptr_t, 5>;

// Options, and the arrays behind their tensors. The holder of the GIL makes and destroys it.
struct Options {
  std::vector<Array> kept;
  AttentionOptions options;

  // Undefined stays what is None: most calls give few of them.
  void take(Tensor& to, nb::handle object, const char* what, Framework from);
  // Integers, (b), or one of no dimensions.
  void take_offset(Offset& to, nb::handle object, const char* what, Framework from);
  // False, True, or the numbers of some rows.
  void take_return_weights(nb::handle wanted, Framework from);
};

// The options of one call: the same, and the inputs beside query, key and value that gradients flow to. attn_mask is by
// its dtype what is kept (boolean) or what is added (floating).
Options with_inputs(const Options& options, nb::handle attn_mask, nb::handle sinks, nb::handle relative_bias,
                    Framework from);

// A floating dtype by its name. Throws Error (dtype) for another name.
std::optional<DType> optional_dtype(nb::handle object, const char* op, const char* what);

}  // namespace attn::python
