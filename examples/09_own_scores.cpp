// Your own function of the scores, with its gradient, inside the fused kernels; and a block-sparse mask.
#include <attn/attn.hpp>
#include <iostream>

int main() {
  attn::Generator rng(123);
  const attn::Tensor q = rng.randn({1, 2, 6, 4}), k = rng.randn({1, 2, 6, 4}), v = rng.randn({1, 2, 6, 4});

  // Scores fade with the square of the distance; head 1 fades faster.
  const auto fade = [](auto score, auto /*b*/, auto h, auto i, auto j) {
    const auto distance = static_cast<float>(i - j);
    return score - 0.1f * static_cast<float>(1 + h) * distance * distance;
  };
  const auto slope = [](auto, auto...) { return 1; };  // the derivative by the score

  const attn::Tensor blocks = attn::tril_ones(3, 3).to(attn::DType::boolean);  // of 2 queries and 2 keys
  const attn::AttentionOptions options{.mask = attn::Mask::blocks(blocks, 2, 2),
                                       .score_function = attn::ScoreFunction::elementwise(fade, slope),
                                       .return_weights = true};
  const attn::AttentionResult result = attn::attention(q, k, v, options);
  std::cout << "weights\n" << attn::to_string(result.weights.select(0, 0)) << "\n";

  const attn::AttentionGradient grad = attn::attention_backward(result.output, q, k, v, options);
  std::cout << "dq of head 0\n" << attn::to_string(grad.q.select(0, 0).select(0, 0)) << "\n";
}
