// What an enumeration holds may be a number that was cast to it, and names nothing.
#pragma once

#include <string>
#include <type_traits>

#include "attn/error.hpp"

namespace attn {

// Throws Error (argument) for a value past `last`, the last one of its enumeration, or below its first, which is 0.
template <class E>
void require_known(const char* op, const char* what, E value, E last) {
  using Number = std::underlying_type_t<E>;
  const auto number = static_cast<Number>(value), most = static_cast<Number>(last);
  if (number <= most && !(number < Number{0})) return;
  throw Error(Error::Kind::argument, op, std::string(what) + " as one of its enumeration's " + std::to_string(most + 1),
              "the number " + std::to_string(number), "write the value by its name");
}

}  // namespace attn
