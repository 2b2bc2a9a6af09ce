// The names of precisions, as PyTorch's set_float32_matmul_precision has them.
#include "attn/attention.hpp"
#include "attn/error.hpp"

namespace attn {

std::string_view name(Precision precision) noexcept {
  switch (precision) {
    case Precision::highest:
      return "highest";
    case Precision::high:
      return "high";
    case Precision::medium:
      return "medium";
  }
  return "unknown";  // a number that was cast
}

Precision parse_precision(std::string_view text) {
  for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
    if (text == name(precision)) return precision;
  }
  throw Error(Error::Kind::argument, "precision", "highest, high or medium", text);
}

}  // namespace attn
