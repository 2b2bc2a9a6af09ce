// Numbers as decimal text, the same in every locale.
#pragma once

#include <string>

namespace attn {

// "%.{digits}g": at most so many significant digits.
std::string decimal(double value, int digits);
// The fewest digits that read back as the same number, as a float32 where it is one.
std::string shortest_decimal(double value);

}  // namespace attn
