// Tests the modules' outputs against the steps put together here, and which inputs may not reach them.
#include "attn/reference.hpp"
#include "modules/helpers.hpp"

namespace attn::test {
namespace {

namespace ref = attn::reference;
using Kind = Error::Kind;

// One head over x (t, d_in), from the weights of a state_dict.
Tensor one_head(const StateDict& state, const std::string& prefix, const Tensor& x, std::optional<double> scale,
                bool causal) {
  const auto projected = [&](const char* what) {
    const auto bias = state.find(prefix + what + ".bias");
    return ref::project(x, state.at(prefix + what + ".weight"), bias == state.end() ? Tensor{} : bias->second);
  };
  const Tensor q = projected("W_query");
  Tensor s =
      ref::scale(ref::scores(q, projected("W_key")), scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1)))));
  if (causal) s = ref::mask_fill(s, tril_ones(x.size(0), x.size(0), DType::boolean));
  return ref::weighted_sum(ref::softmax(s), projected("W_value"));
}

TEST(Forward, SimplifiedSelfAttentionIsSoftmaxOfItsOwnProducts) {
  const Tensor x = draw({5, 3});
  expect_close(SimplifiedSelfAttention().forward(x), ref::weighted_sum(ref::softmax(ref::scores_by_loop(x, x)), x),
               1e-6, "simplified");
}

TEST(Forward, OneHeadModules) {
  const Tensor x = draw({5, 3});
  for (const bool bias : {false, true}) {
    const ModuleConfig config{.d_in = 3, .d_out = 4, .qkv_bias = bias};
    for (const auto& [name, causal] : {std::pair{"SelfAttentionV2", false}, {"CausalAttention", true}}) {
      const auto module = build(name, config, seeded());
      expect_close(module->forward(x), one_head(module->state_dict(), "", x, {}, causal), 1e-6, name);
    }
    const auto head = build("SelfAttentionHead", config, seeded());
    expect_close(head->forward(x), one_head(head->state_dict(), "", x, 1, true), 1e-6, "head, not scaled");
  }
}

TEST(Forward, ScaleAndMaskAreTheConfigs) {
  const Tensor x = draw({5, 3});
  const auto causal = build("CausalAttention", {.d_in = 3, .d_out = 4, .causal = false, .scale = 0.25}, seeded());
  expect_close(causal->forward(x), one_head(causal->state_dict(), "", x, 0.25, false), 1e-6, "causal");
  const auto head = build("SelfAttentionHead", {.d_in = 3, .d_out = 4, .scale = 0.25}, seeded());
  expect_close(head->forward(x), one_head(head->state_dict(), "", x, 0.25, true), 1e-6, "head");
  const auto v2 = build("SelfAttentionV2", {.d_in = 3, .d_out = 4, .causal = true}, seeded());
  expect_close(v2->forward(x), one_head(v2->state_dict(), "", x, {}, false), 1e-6, "v2 has no mask");
}

TEST(Forward, SelfAttentionV1UsesItsWeightsFromTheRight) {
  Generator rng(1);
  SelfAttentionV1 v1(3, 2, rng);
  const Tensor x = draw({5, 3}), q = ref::matmul(x, v1.W_query.value), k = ref::matmul(x, v1.W_key.value);
  const Tensor w = ref::softmax(ref::scale(ref::scores(q, k), 1 / std::sqrt(2.0)));
  expect_close(v1.forward(x), ref::weighted_sum(w, ref::matmul(x, v1.W_value.value)), 1e-6, "v1");
}

TEST(Forward, TheWrapperIsItsHeadsConcatenated) {
  const Tensor x = draw({5, 3});
  const auto wrapper = build("MultiHeadAttentionWrapper", {.d_in = 3, .d_out = 2, .num_heads = 3}, seeded());
  std::vector<Tensor> heads;
  for (int i = 0; i < 3; ++i) {
    heads.push_back(one_head(wrapper->state_dict(), "heads." + std::to_string(i) + ".", x, {}, true));
  }
  const Tensor z = wrapper->forward(x);
  EXPECT_EQ(z.shape(), (Shape{5, 6}));
  expect_close(z, concat_last(heads), 1e-6, "wrapper");
  Generator rng(123);  // and its heads are drawn one after the other
  CausalAttention first({.d_in = 3, .d_out = 2}, rng), second({.d_in = 3, .d_out = 2}, rng);
  EXPECT_TRUE(identical(z.slice(1, 2, 4).contiguous(), second.forward(x)));
}

TEST(Forward, MultiHeadSplitsItsWeightsByRows) {
  const Tensor x = draw({5, 3});
  Generator rng(1);
  MultiHeadAttention mha({.d_in = 3, .d_out = 6, .num_heads = 3, .qkv_bias = true}, rng);
  const StateDict all = mha.state_dict();
  std::vector<Tensor> heads;
  for (std::int64_t h = 0; h < 3; ++h) {
    StateDict slice;
    for (const auto& [name, value] : all) {
      if (name[0] == 'W') slice[name] = value.slice(0, 2 * h, 2 * h + 2);
    }
    heads.push_back(one_head(slice, "", x, {}, true));
  }
  const Tensor merged = concat_last(heads);
  expect_close(mha.forward(x), ref::project(merged, all.at("out_proj.weight"), all.at("out_proj.bias")), 1e-6, "mha");
  MultiHeadAttention bare({.d_in = 3, .d_out = 6, .num_heads = 3, .qkv_bias = true, .out_proj = false}, rng);
  StateDict projections = all;
  projections.erase("out_proj.weight"), projections.erase("out_proj.bias");
  bare.load_state_dict(projections);
  expect_close(bare.forward(x), merged, 1e-6, "without out_proj");
}

TEST(Forward, CrossAttentionReadsItsSource) {
  Generator rng(1);
  CrossAttention cross({.d_in = 3, .d_out = 4, .causal = true}, rng);
  const Tensor x = draw({2, 3}, 1), source = draw({7, 3}, 2);
  StateDict s = cross.state_dict();
  const Tensor q = ref::project(x, s.at("W_query.weight")), k = ref::project(source, s.at("W_key.weight"));
  const Tensor w = ref::softmax(ref::scale(ref::scores(q, k), 0.5));
  const Tensor context = ref::weighted_sum(w, ref::project(source, s.at("W_value.weight")));
  expect_close(cross.forward(x, source, nullptr), ref::project(context, s.at("out_proj.weight"), s.at("out_proj.bias")),
               1e-6, "no mask, other length");
  EXPECT_TRUE(identical(cross.forward(x), cross.forward(x, x, nullptr)));
}

TEST(Forward, ABatchIsItsItemsBitForBit) {
  for (const std::string& name : kAll) {
    SCOPED_TRACE(name);
    const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
    const Tensor x = draw({3, 5, 3}), z = module->forward(x);
    for (std::int64_t b = 0; b < 3; ++b) {
      EXPECT_TRUE(identical(z.select(0, b).contiguous(), module->forward(x.select(0, b)).contiguous()));
    }
    std::mt19937 rng(1);
    EXPECT_TRUE(identical(module->forward(scattered(rng, x)).contiguous(), z.contiguous())) << "any strides";
  }
}

TEST(Forward, TheFutureReachesNoEarlierRow) {
  for (const std::string& name : kCausal) {
    for (const double future : {1.5, -1e38, kNan, kInf}) {
      SCOPED_TRACE(name + " with a future of " + std::to_string(future));
      const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
      const Tensor x = draw({2, 5, 3}), before = module->forward(x).clone();
      x.slice(1, 3, 5).fill(future);
      const Tensor after = module->forward(x);
      if (std::isfinite(future)) {
        EXPECT_TRUE(identical(after.slice(1, 0, 3), before.slice(1, 0, 3)));
      }
      expect_close(after.slice(1, 0, 3), before.slice(1, 0, 3), 1e-6, "earlier rows");
      EXPECT_FALSE(identical(after.slice(1, 3, 5), before.slice(1, 3, 5)));
    }
  }
}

TEST(Forward, HugeFiniteInputsGiveFiniteOutputs) {
  for (const std::string& name : kAll) {
    if (name == "LinearAttention" || name.ends_with("DeltaNet")) continue;  // nothing clamps a state
    for (const float huge : {1e38f, 3e38f}) {
      SCOPED_TRACE(name);
      const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2, .qkv_bias = true}, seeded());
      const Tensor x = Generator(3).uniform({2, 5, 3}, -huge / 2, huge / 2), z = module->forward(x);
      expect_finite(z, "output");
    }
  }
}

TEST(Forward, InputsShorterThanTheContextAreFineLongerAreNot) {
  for (const std::string name : {"CausalAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper"}) {
    SCOPED_TRACE(name);
    const auto module = build(name, {.d_in = 3, .d_out = 4, .context_length = 4, .num_heads = 2}, seeded());
    const Tensor x = draw({4, 3}), whole = module->forward(x);
    for (std::int64_t t = 0; t <= 4; ++t) {
      EXPECT_TRUE(identical(module->forward(x.slice(0, 0, t)), whole.slice(0, 0, t).contiguous())) << t;
    }
    expect_error(Kind::shape, {"context_length = 4", "found 5", "raise context_length"}, [&] {
      module->forward(draw({5, 3}));
    });
    expect_error(Kind::shape, {"context_length = 4"}, [&] { module->forward(draw({2, 5, 3})); });
  }
  Generator rng(1);
  CrossAttention cross({.d_in = 3, .d_out = 4, .context_length = 4}, rng);
  EXPECT_THROW(cross.forward(draw({2, 3}), draw({5, 3}), nullptr), Error);
}

TEST(Forward, RefusesInputsThatDoNotFit) {
  for (const std::string& name : kAll) {
    SCOPED_TRACE(name);
    const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
    expect_error(Kind::shape, {"(3,)"}, [&] { module->forward(draw({3})); });
    expect_error(Kind::shape, {"(1, 1, 2, 3)"}, [&] { module->forward(draw({1, 1, 2, 3})); });
    expect_error(Kind::dtype, {"float32", "float64"}, [&] { module->forward(draw({2, 3}).to(DType::f64)); });
    EXPECT_THROW(module->forward({}), Error);
    if (module->parameters().empty()) continue;
    expect_error(Kind::shape, {"(tokens, 3) or (batch, tokens, 3)", "(2, 4)"}, [&] { module->forward(draw({2, 4})); });
  }
  Generator rng(1);
  CrossAttention cross({.d_in = 3, .d_out = 4}, rng);
  expect_error(Kind::shape, {"one batch size", "(2, 3) and (1, 2, 3)"}, [&] {
    cross.forward(draw({2, 3}), draw({1, 2, 3}), nullptr);
  });
  expect_error(Kind::shape, {"one batch size"}, [&] { cross.forward(draw({1, 2, 3}), draw({2, 2, 3}), nullptr); });
  expect_error(Kind::shape, {"source (tokens, 3)", "(2, 4)"}, [&] {
    cross.forward(draw({2, 3}), draw({2, 4}), nullptr);
  });
}

TEST(Forward, NoTokensGiveNoRows) {
  for (const std::string& name : kAll) {
    const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
    EXPECT_EQ(module->forward(Tensor::zeros({0, 3})).numel(), 0) << name;
    EXPECT_EQ(module->forward(Tensor::zeros({0, 2, 3})).numel(), 0) << name;
  }
}

}  // namespace
}  // namespace attn::test
