// Numbers as text, by the page: std::to_chars() has tables of 100 kB here.
#include "core/decimal.hpp"

#include <array>
#include <cstdio>

namespace attn {

std::string decimal(double value, int digits) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}

std::string shortest_decimal(double value) {
  return decimal(value, static_cast<double>(static_cast<float>(value)) == value ? 9 : 17);
}

}  // namespace attn
