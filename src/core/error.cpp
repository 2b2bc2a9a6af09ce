#include "attn/error.hpp"

#include "core/escape.hpp"

namespace attn {
namespace {

std::string message(std::string_view op, std::string_view expected, std::string_view found, std::string_view hint) {
  std::string text;
  text.append("[").append(op).append("] expected ").append(expected).append("; found ").append(found);
  if (!hint.empty()) text.append("; ").append(hint);
  return escaped(text);
}

}  // namespace

Error::Error(Kind kind, std::string_view op, std::string_view expected, std::string_view found, std::string_view hint)
    : std::runtime_error(message(op, expected, found, hint)), kind_(kind), op_(op) {}

}  // namespace attn
