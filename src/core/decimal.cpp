#include "core/decimal.hpp"

#include <array>
#include <charconv>

namespace attn {
namespace {

template <class... Format>
std::string written(Format... format) {
  std::array<char, 40> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), format...).ptr};
}

}  // namespace

std::string decimal(double value, int digits) { return written(value, std::chars_format::general, digits); }

std::string shortest_decimal(double value) {
  const auto single = static_cast<float>(value);
  return static_cast<double>(single) == value ? written(single) : written(value);
}

}  // namespace attn
