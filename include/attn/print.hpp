// Tensors as text, as PyTorch prints them.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "attn/tensor.hpp"

namespace attn {

// torch.set_printoptions' settings and defaults.
struct PrintOptions {
  int precision = 4;
  std::int64_t threshold = 1000;  // more elements than this are summarised with "..."
  std::int64_t edge_items = 3;
  int line_width = 80;
};

// "tensor([[0.4306, 1.4551],\n        [...]])", character for character what print(tensor) gives in
// PyTorch: int mode ("1."), scientific mode, column width, wrapping, summarising, inf and nan, dtype suffix.
std::string to_string(const Tensor& tensor, const PrintOptions& options = {});
inline std::string to_string(const Shape& shape) { return shape.str(); }

// std::cout << tensor prints to_string(tensor), and so with shapes.
inline std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << to_string(tensor); }
inline std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

}  // namespace attn
