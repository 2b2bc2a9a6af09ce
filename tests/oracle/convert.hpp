// The oracle's problem from the library's tensors and options, and its numbers beside the library's.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "attn/attention.hpp"
#include "oracle/attention.hpp"

namespace oracle {

// Every element in row-major order.
std::vector<double> values(const attn::Tensor& t);

// Returns the problem with the kernels' roundoffs for these inputs.
Problem problem_of(const attn::Tensor& q, const attn::Tensor& k, const attn::Tensor& v,
                   const attn::AttentionOptions& options);
void set_roundoff(Problem& p, attn::DType inputs, attn::Precision precision);

// Empty when every number is right within a few roundoffs of its size and one of its dtype; else which one is not.
// Infinities and NaN must be where they are in `expected`; of a gradient they are one, as which of them a sum is
// depends on its order. What is past the dtype's range may be its largest number or infinite.
enum class Of { result, gradient };
std::string difference(const attn::Tensor& found, const Numbers& expected, double roundoff, const std::string& what,
                       Of of = Of::result);

}  // namespace oracle
