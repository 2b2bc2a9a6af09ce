// What sees all layers of a model at once has one number of heads for them.
#pragma once

#include <string>

#include "attn/error.hpp"
#include "attn/language_model.hpp"

namespace attn {

// Heads that keep a state are as many as those of softmax attention. Throws Error (argument).
inline void require_alike_heads(const LanguageModelConfig& c, const char* op) {
  if (!c.gated_delta || c.gated_delta->value_heads == c.heads) return;
  throw Error(Error::Kind::argument, op, "layers that keep a state with as many heads as the others",
              std::to_string(c.gated_delta->value_heads) + " and " + std::to_string(c.heads));
}

}  // namespace attn
