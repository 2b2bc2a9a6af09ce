// Checks that an activation may stand without a gate.
#pragma once

#include "attn/error.hpp"
#include "attn/feed_forward.hpp"

namespace attn {

inline void require_gelu(const char* op, Activation form) {
  if (form == Activation::gelu || form == Activation::gelu_tanh) return;
  throw Error(Error::Kind::argument, op, "gelu or gelu_tanh", form == Activation::silu ? "silu" : "sigmoid",
              "it is there with a gate only");
}

}  // namespace attn
