// Queries from one sequence, keys and values from another of any length.
#include <attn/attn.hpp>
#include <iostream>

int main() {
  attn::Generator rng(123);
  attn::CrossAttention cross({.d_in = 3, .d_out = 4, .num_heads = 2}, rng);
  const attn::Tensor x = rng.rand({2, 3}), source = rng.rand({5, 3});

  attn::Trace steps;
  const attn::Tensor z = cross.forward(x, source, &steps);
  std::cout << "weights " << steps["weights"].shape().str() << "\n" << attn::to_string(steps["weights"]) << "\n";
  std::cout << "output\n" << attn::to_string(z) << "\n";
}
