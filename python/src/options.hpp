// The operator's keyword arguments as AttentionOptions.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "attn/attention.hpp"

namespace attn::python {

// Of ScoreFunction's forward, backward, forward64, backward64 and user.
using Addresses = std::array<std::uintptr_t, 5>;

// In the order of every binding and of operator.py's schemas: by position, all of them.
struct Arguments {
  nb::object attn_mask, sinks, alibi_slopes, key_lengths, query_starts, key_starts, block_mask;
  std::optional<std::uint64_t> dropout_key;
  double dropout_p;
  bool is_causal;
  std::optional<double> scale;
  std::int64_t window_left, window_right, block_query, block_key;
  double softcap;
  std::string_view causal_alignment, precision;
  std::optional<Addresses> score_function;
};

// And the arrays behind the options' tensors.
struct Options {
  std::vector<Array> kept;
  AttentionOptions options;

  // Undefined stays what is None: most calls give few of them.
  void take(Tensor& to, nb::handle object, const char* what, Framework from);
};

// Throws Error for a name that is none of causal_alignment's or precision's, and what read() throws.
Options read_options(const Arguments& arguments, Framework from);

}  // namespace attn::python
