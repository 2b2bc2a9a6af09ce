// Some of a layer's heads, told which they are, have the bits of the call of all: as ranks that share out heads compute
// them (attn/distributed.hpp).
#include "attention/tiles.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

using SomeHeads = kernels::CallsOnUnits;

// Returns the options for query heads [first, last) alone.
AttentionOptions of_heads(const AttentionOptions& options, std::int64_t hq, std::int64_t first, std::int64_t last) {
  AttentionOptions some = options;
  for (Tensor* t : {&some.mask.keep, &some.mask.bias, &some.mask.block_keep, &some.dropout_keep}) {
    if (t->defined() && t->rank() >= 3 && t->size(-3) != 1) *t = t->slice(-3, first, last);
  }
  for (Tensor* t : {&some.alibi_slopes, &some.sinks}) {
    if (t->defined()) *t = t->slice(0, first, last);
  }
  if (some.relative_bias.table.defined()) some.relative_bias.table = some.relative_bias.table.slice(1, first, last);
  some.heads = {first, hq};
  return some;
}

void check(std::mt19937& rng, DType dtype) {
  Inputs in = tile_inputs(rng, dtype);
  Sizes& s = in.sizes;
  s.hkv = 3, s.hq = 3 * pick(rng, 1, 2);
  s.tk = dtype == DType::f64 ? pick(rng, 1, 40) : chance(rng, 0.3) ? 900 : s.tk;  // 3 heads cut 900 otherwise than 1
  in.q = uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype), in.k = uniform(rng, {s.b, 3, s.tk, s.d}, dtype);
  in.v = uniform(rng, {s.b, 3, s.tk, s.dv}, dtype);
  in.options = random_options(rng, s, DType::f32);
  if (in.options.dropout == 1) in.options.dropout = 0, in.options.dropout_keep = {};
  add_options(rng, in);
  in.options.return_weights = false, in.options.weight_rows = {};
  SCOPED_TRACE(describe(in));
  const Tensor g = uniform(rng, {s.b, s.hq, s.tq, s.dv}, dtype);
  const std::int64_t head = pick(rng, 0, 2), group = s.hq / 3, first = head * group, last = first + group;
  const AttentionOptions options = of_heads(in.options, s.hq, first, last);
  const auto own = [&](const Tensor& t) { return t.slice(1, first, last).contiguous(); };
  const Tensor q = own(in.q), k = in.k.slice(1, head, head + 1), v = in.v.slice(1, head, head + 1);
  const AttentionResult all = attention(in.q, in.k, in.v, in.options), some = attention(q, k, v, options);
  EXPECT_TRUE(identical(some.output, own(all.output))) << "output";
  EXPECT_TRUE(identical(some.lse, own(all.lse))) << "lse";
  const AttentionGradient d_all = attention_backward(g, in.q, in.k, in.v, in.options, all),
                          d_some = attention_backward(own(g), q, k, v, options, some);
  EXPECT_TRUE(identical(d_some.q, own(d_all.q))) << "dq";
  EXPECT_TRUE(identical(d_some.k, d_all.k.slice(1, head, head + 1).contiguous())) << "dk";
  EXPECT_TRUE(identical(d_some.v, d_all.v.slice(1, head, head + 1).contiguous())) << "dv";
}

TEST_P(SomeHeads, HaveTheBitsOfAll) {
  for_seeds(8, [](std::mt19937& rng) {
    constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
    check(rng, kDTypes[pick(rng, 0, 2)]);
  });
}

INSTANTIATE_TEST_SUITE_P(Kernels, SomeHeads, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& instance) { return instance.param; });

TEST(SomeHeadsComposed, HaveTheBitsOfAll) {
  for_seeds(20, [](std::mt19937& rng) { check(rng, DType::f64); });
}

TEST(HeadRange, WhatIsNoGroupOfHeadsIsRefused) {
  const Tensor q = Tensor::ones({1, 4, 3, 4}), k = Tensor::ones({1, 2, 3, 4});
  for (const HeadRange heads : {HeadRange{1, 8}, {0, 7}, {-2, 8}, {6, 8}, {2, 0}}) {
    AttentionOptions options;
    options.heads = heads;
    expect_error(Error::Kind::argument, {"whole groups", "4 from " + std::to_string(heads.first)},
                 [&] { attention(q, k, k, options); });
  }
}

}  // namespace
}  // namespace attn::test
