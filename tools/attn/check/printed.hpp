// Numbers as a notebook shows them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "check/check.hpp"

namespace attn::check {

struct Printed {
  std::string what;
  std::vector<std::string> numbers;  // tokens, row-major: "0.4306", "-inf", "2."
  Shape shape;                       // from the brackets; a bare number has none
};

// Entries "@ what\ntext" whose text is tensor(…), torch.Size([…]), [..], a number or True/False.
std::vector<Printed> parse_printed(std::string_view text);

// Every computed number, rounded to as many decimals as printed (at least four for "2." and the like, which
// PyTorch prints when no decimal is lost), gives the printed digits; and the shapes are equal.
Comparison compare(const Printed& printed, const Tensor& computed);

}  // namespace attn::check
