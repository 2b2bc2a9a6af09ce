// Every module asks this of its input, and adds up gradients so.
#pragma once

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/module.hpp"
#include "core/decimal.hpp"

namespace attn {

// x is float32 (or `stored`), (t, d_in) or (b, t, d_in); d_in = 0 takes any.
inline void require_input(const char* op, const char* what, const Tensor& x, std::int64_t d_in,
                          DType stored = DType::f32) {
  const std::string size = d_in == 0 ? "d_in" : std::to_string(d_in);
  if (x.rank() < 2 || x.rank() > 3 || (d_in != 0 && x.size(-1) != d_in)) {
    throw Error(Error::Kind::shape, op, std::string(what) + " (tokens, " + size + ") or (batch, tokens, " + size + ")",
                x.shape().str());
  }
  if (x.dtype() != DType::f32 && x.dtype() != stored) {
    throw Error(Error::Kind::dtype, op, std::string(what) + " of dtype float32", name(x.dtype()),
                "convert it to float32");
  }
}

// A module that was moved from has lost its weights, and a cache its tokens.
inline void require_whole(const char* op, bool whole, const char* what = "a module with its weights") {
  if (!whole) throw Error(Error::Kind::argument, op, what, "one that was moved from");
}

inline void require_positive(const char* op, const char* what, std::int64_t value) {
  if (value < 1) throw Error(Error::Kind::argument, op, std::string(what) + " of at least 1", std::to_string(value));
}

// A factor or a softcap: finite, and not below `least`.
inline void require_finite(const char* op, const char* what, double value, double least = -HUGE_VAL) {
  if (std::isfinite(value) && value >= least) return;
  const std::string from = std::isinf(least) ? "" : " of at least " + shortest_decimal(least);
  throw Error(Error::Kind::argument, op, "a finite " + std::string(what) + from, shortest_decimal(value));
}

// A norm adds it in float32, where a smaller one would be nothing, and make NaN of a row of zeros.
inline void require_epsilon(const char* op, double epsilon) {
  if (epsilon >= 0x1p-126 && epsilon < 0x1p127) return;
  throw Error(Error::Kind::argument, op, "a finite epsilon > 0, of at least 2^-126", shortest_decimal(epsilon));
}

// For `tokens` that follow those `held` in a cache; longest = 0 takes any.
inline void require_context(const char* op, std::int64_t longest, std::int64_t tokens, std::int64_t held) {
  if (longest == 0 || tokens <= longest - held) return;
  throw Error(Error::Kind::shape, op, "at most context_length = " + std::to_string(longest) + " tokens",
              held > 0 ? std::to_string(held) + " in the cache and " + std::to_string(tokens) : std::to_string(tokens),
              "raise context_length or shorten the input");
}

inline void require_forward(const char* op, bool done) {
  if (!done) throw Error(Error::Kind::argument, op, "forward() before backward()", "no forward pass");
}

// dz, with its batch: of the output's shape, float32 or as the output is stored.
void require_gradient(const char* op, const Tensor& dz, const Shape& shape, DType stored = DType::f32);

// Those of all parts that are there, which are not null, in their order.
std::vector<Parameter*> parameters_of(std::initializer_list<Module*> parts);

// parameter.grad += grad, where it requires one; grad may be undefined where it does not.
void accumulate(Parameter& parameter, const Tensor& grad);

// A trace for attention(), which hands each of its steps (b, h, …) on to `trace`, without the dimensions that x (or a
// single head) does not have: b = 1 where `drop_batch`, h = 1 where `drop_heads`. Where queries and keys were `turned`
// before, it calls them so.
Trace steps_within(Trace& trace, bool drop_batch, bool drop_heads, bool turned = false);

}  // namespace attn
