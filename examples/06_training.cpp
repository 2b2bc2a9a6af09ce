// Gradient descent: a causal head learns to give back the token before it.
#include <attn/attn.hpp>
#include <cstdio>

int main() {
  attn::Generator rng(1);
  const attn::Tensor x = rng.randn({6, 4}), target = attn::Tensor::zeros({6, 4});
  target.slice(0, 1, 6).copy_from(x.slice(0, 0, 5));

  attn::MultiHeadAttention mha({.d_in = 4, .d_out = 4, .num_heads = 2}, rng);
  for (int step = 0; step <= 100; ++step) {
    const attn::Tensor z = mha.forward(x), dz = attn::Tensor::empty(z.shape());
    double loss = 0;  // mean (z - target)², and its gradient
    for (std::int64_t i = 0; i < z.numel(); ++i) {
      const float difference = z.data<float>()[i] - target.data<float>()[i];
      loss += difference * difference / static_cast<double>(z.numel());
      dz.data<float>()[i] = 2 * difference / static_cast<float>(z.numel());
    }
    if (step % 25 == 0) std::printf("step %3d  loss %.4f\n", step, loss);

    mha.zero_grad();
    mha.backward(dz);
    for (attn::Parameter* p : mha.parameters()) {
      for (std::int64_t i = 0; i < p->value.numel(); ++i) p->value.data<float>()[i] -= 0.2f * p->grad.data<float>()[i];
    }
  }
}
