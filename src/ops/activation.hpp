// Checks that an activation may stand without a gate.
#pragma once

#include "attn/error.hpp"
#include "attn/feed_forward.hpp"
#include "core/known.hpp"

namespace attn {

inline void require_gelu(const char* op, Activation form) {
  if (form == Activation::gelu || form == Activation::gelu_tanh) return;
  require_known(op, "an activation", form, Activation::sigmoid);
  throw Error(Error::Kind::argument, op, "gelu or gelu_tanh", form == Activation::silu ? "silu" : "sigmoid",
              "it is there with a gate only");
}

}  // namespace attn
