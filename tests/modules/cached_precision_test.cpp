// Attention to a cache is as the module's config says.
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

// A step on a cache heeds what a config says of attention, as the whole pass does.
TEST(CachedAttention, FollowsTheConfig) {
  const auto with = [](const auto& change) {
    ModuleConfig config{.d_in = 6, .d_out = 8, .num_heads = 2};
    change(config);
    return config;
  };
  std::mt19937 rng(2);
  const Tensor x = uniform(rng, {2, 5, 6}, DType::f32, -3, 3);
  for (const ModuleConfig& config :
       {with([](ModuleConfig&) {}), with([](ModuleConfig& c) { c.scale = 0.1; }),
        with([](ModuleConfig& c) { c.qkv_bias = true; }), with([](ModuleConfig& c) { c.out_proj = false; }),
        with([](ModuleConfig& c) { c.causal = false; }), with([](ModuleConfig& c) {
          c.rope = RotaryFrequencies{{1.f, 0.1f}};
        })}) {
    Generator generator(7);
    MultiHeadAttention attention_module(config, generator);
    AttentionLayer& module = attention_module;
    const Tensor whole = module.forward(x);
    KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 4});
    const std::int64_t first = config.causal ? 2 : 5;  // without a mask all keys must be there
    expect_close(module.forward(x.slice(1, 0, first), cache), whole.slice(1, 0, first), 1e-6, "the first tokens");
    if (first < 5)
      expect_close(module.forward(x.slice(1, first, 5), cache), whole.slice(1, first, 5), 1e-6, "the next");
  }
}

}  // namespace
}  // namespace attn::test
