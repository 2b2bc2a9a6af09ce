// Causal multi-head attention over a batch, every step recorded.
#include <attn/attn.hpp>
#include <iostream>
#include <vector>

int main() {
  const attn::Tensor words = attn::Tensor::of({{0.43f, 0.15f, 0.89f},
                                               {0.55f, 0.87f, 0.66f},
                                               {0.57f, 0.85f, 0.64f},
                                               {0.22f, 0.58f, 0.33f},
                                               {0.77f, 0.25f, 0.10f},
                                               {0.05f, 0.80f, 0.55f}});
  const attn::Tensor batch = attn::stack(std::vector<attn::Tensor>{words, words});

  attn::Generator rng(123);  // torch.manual_seed(123)
  attn::MultiHeadAttention mha({.d_in = 3, .d_out = 2, .context_length = 6, .num_heads = 2}, rng);
  attn::Trace steps;
  const attn::Tensor z = mha.forward(batch, &steps);

  for (const auto& [name, value] : steps.steps()) std::cout << name << " " << value.shape().str() << "\n";
  std::cout << "weights of the first item's first head\n"
            << attn::to_string(steps["weights"].select(0, 0).select(0, 0)) << "\n";
  std::cout << "output of the first item\n" << attn::to_string(z.select(0, 0)) << "\n";
}
