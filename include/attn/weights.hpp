// Weights that a model has only while it computes with them, as the model sees them: it asks for those of a part of
// itself, such as a block, just before it computes with them, and gives them back right after.
// attn/weight_shards.hpp makes this of ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/tensor.hpp"

namespace attn {

struct Parameter;

// A model's parameters in their order, cut into runs that are used together.
using WeightParts = std::vector<std::vector<Parameter*>>;

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Parts are numbered as the model's weight_parts(). Starts to fetch the weights of one, which take() waits for.
  virtual void begin(std::size_t part) = 0;
  // Afterwards the values of the part's parameters are whole, until release().
  virtual void take(std::size_t part) = 0;
  virtual void release(std::size_t part) noexcept = 0;
};

// Returns what stands in the place of a value that is elsewhere: a float32 tensor of its shape without memory. Models
// throw Error (argument) where they would compute with it.
Tensor absent(const Shape& shape);
bool is_absent(const Tensor& value) noexcept;

}  // namespace attn
