// The bare operator: (b, t, h, d) memory read through a transposed view, two new queries at the end of five
// keys, so that the causal diagonal lies bottom right; and the log-sum-exp of each row.
#include <attn/attn.hpp>
#include <iostream>

int main() {
  attn::Generator rng(42);
  const attn::Tensor q = rng.rand({1, 2, 4, 8}).transpose(1, 2);  // (b, hq, tq, d): 4 query heads
  const attn::Tensor k = rng.rand({1, 5, 2, 8}).transpose(1, 2);  // (b, hkv, tk, d): 2 heads, each read by two
  const attn::Tensor v = rng.rand({1, 5, 2, 3}).transpose(1, 2);  // (b, hkv, tk, dv)

  const auto result = attn::attention(q, k, v, {.mask = attn::Mask::causal(attn::Align::bottom_right)});
  std::cout << "output " << result.output.shape().str() << "\n" << attn::to_string(result.output) << "\n";
  std::cout << "lse " << result.lse.shape().str() << "\n" << attn::to_string(result.lse) << "\n";
}
