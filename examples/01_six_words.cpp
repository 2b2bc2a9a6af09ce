// Self-attention without weights: six words look at each other.
#include <attn/attn.hpp>
#include <iostream>

int main() {
  const attn::Tensor x = attn::Tensor::of({{0.43f, 0.15f, 0.89f},    // Your
                                           {0.55f, 0.87f, 0.66f},    // journey
                                           {0.57f, 0.85f, 0.64f},    // starts
                                           {0.22f, 0.58f, 0.33f},    // with
                                           {0.77f, 0.25f, 0.10f},    // one
                                           {0.05f, 0.80f, 0.55f}});  // step
  std::cout << attn::to_string(attn::SimplifiedSelfAttention().forward(x)) << "\n";
}
