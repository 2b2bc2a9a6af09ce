// Attention to a cache multiplies as the module's precision says.
#include "attn/kv_cache.hpp"
#include "attn/modules.hpp"
#include "core/testing.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

// Projections by the identity, of numbers that bfloat16 holds: what is rounded, attention rounds.
TEST(CachedAttention, FollowsThePrecision) {
  constexpr std::int64_t width = 64, tokens = 40;
  std::mt19937 rng(1);
  const Tensor x = uniform(rng, {1, tokens, width}, DType::bf16).to(DType::f32);
  for (const kernels::Target& target : kernels::targets()) {
    if (!target.supported) continue;
    const kernels::UseKernels use(*target.kernels);
    for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
      Generator generator(1);
      MultiHeadAttention module({.d_in = width, .d_out = width, .num_heads = 2, .precision = precision}, generator);
      for (Parameter* p : module.parameters()) {
        p->value.fill(0);
        for (std::int64_t i = 0; p->value.rank() == 2 && i < width; ++i) p->value.set({i, i}, 1);
      }
      KVCache cache({.kv_heads = 2, .head_dim = width / 2});
      const Tensor heads = x.view({1, tokens, 2, width / 2}).transpose(1, 2);
      const AttentionOptions options{.mask = Mask::causal(Align::bottom_right), .precision = precision};
      const Tensor expected = attention(heads, heads, heads, options).output.transpose(1, 2);
      const Tensor found = module.forward(x, cache);
      // The output's projection keeps 8 bits at medium, 16 at high.
      const double close = precision == Precision::highest ? 0 : precision == Precision::high ? 0x1p-14 : 0x1p-7;
      expect_close(found, expected.contiguous().view({1, tokens, width}), close, std::string(target.isa));
      if (precision != Precision::medium || target.kernels->multiply_add_bf16 == nullptr) continue;
      const Tensor exact = attention(heads, heads, heads, {.mask = options.mask}).output;
      EXPECT_FALSE(
          identical(found.view({1, tokens, 2, width / 2}).transpose(1, 2).to(DType::bf16), exact.to(DType::bf16)))
          << target.isa;
    }
  }
}

}  // namespace
}  // namespace attn::test
