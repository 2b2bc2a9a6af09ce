// From a row of the list to something that can be called and timed.
#pragma once

#include <functional>

#include "bench/inputs.hpp"
#include "bench/row.hpp"

namespace attn::tool {

// The limit that a row is measured by: multiply-adds of float32, of bf16, or reads from memory.
enum class Bound { f32, bf16, read };

struct Work {
  std::function<void()> run;
  std::function<void()> plain;  // the same by the reference; empty when it has none, or not the memory for it
  double plain_operations = 0;  // of that; the reference does about 1e9 a second
  double operations = 0;        // floating-point; of a causal mask half, of a backward pass 2.5 forward passes
  double bytes = 0;             // that must come from memory, of Bound::read
  Bound bound = Bound::f32;
};

// Throws Error (data) for an op, a shape, a dtype, a mask or a precision that cannot be timed.
void check_row(const Row& row);
Work make_work(const Row& row, BenchInputs& inputs);

}  // namespace attn::tool
