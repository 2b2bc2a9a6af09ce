// Construction, state_dicts, modes, dropout and traces.
#include "attn/recurrent_modules.hpp"
#include "modules/helpers.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

std::string names_and_shapes(Module& module) {
  std::string all;
  for (const Parameter* p : module.parameters()) all += p->name + p->value.shape().str() + " ";
  return all;
}

TEST(StateDict, NamesAndShapesArePyTorchs) {
  const ModuleConfig plain{.d_in = 3, .d_out = 4, .num_heads = 2};
  ModuleConfig biased = plain;
  biased.qkv_bias = true;
  const auto all = [](const char* name, const ModuleConfig& c) { return names_and_shapes(*build(name, c, seeded())); };
  EXPECT_EQ(all("SelfAttentionV1", plain), "W_query(3, 4) W_key(3, 4) W_value(3, 4) ");
  const std::string one = "W_query.weight(4, 3) W_key.weight(4, 3) W_value.weight(4, 3) ";
  for (const char* name : {"SelfAttentionV2", "SelfAttentionHead", "CausalAttention"}) EXPECT_EQ(all(name, plain), one);
  const std::string out = "out_proj.weight(4, 4) out_proj.bias(4,) ";
  EXPECT_EQ(all("MultiHeadAttention", plain), one + out);
  EXPECT_EQ(all("CrossAttention", plain), one + out);
  EXPECT_EQ(all("MultiHeadAttention", biased),
            "W_query.weight(4, 3) W_query.bias(4,) W_key.weight(4, 3) W_key.bias(4,) W_value.weight(4, 3) "
            "W_value.bias(4,) " +
                out);
  EXPECT_EQ(all("MultiHeadAttentionWrapper", plain),
            "heads.0.W_query.weight(4, 3) heads.0.W_key.weight(4, 3) heads.0.W_value.weight(4, 3) "
            "heads.1.W_query.weight(4, 3) heads.1.W_key.weight(4, 3) heads.1.W_value.weight(4, 3) ");
  Generator rng(1);
  Linear named(3, 4, true, rng, "lin"), anonymous(3, 4, false, rng);
  EXPECT_EQ(names_and_shapes(named), "lin.weight(4, 3) lin.bias(4,) ");
  EXPECT_EQ(names_and_shapes(anonymous), "weight(4, 3) ");
}

TEST(StateDict, LoadsWhatAnotherSaved) {
  for (const std::string& name : kTrainable) {
    const ModuleConfig config{.d_in = 3, .d_out = 4, .num_heads = 2, .qkv_bias = true};
    const auto a = build(name, config, seeded(1)), b = build(name, config, seeded(2));
    const Tensor x = draw({5, 3});
    EXPECT_FALSE(identical(a->forward(x), b->forward(x))) << name;
    b->load_state_dict(a->state_dict());
    EXPECT_TRUE(identical(a->forward(x), b->forward(x))) << name;
    b->parameters()[0]->value.fill(0);
    EXPECT_FALSE(identical(a->forward(x), b->forward(x))) << name << ": loading copies";
  }
}

// Ones above the diagonal, as the book's classes store them.
Tensor causal_mask(std::int64_t tokens, DType dtype) {
  Tensor mask = Tensor::zeros({tokens, tokens}, dtype);
  for (std::int64_t i = 0; i < tokens; ++i) {
    for (std::int64_t j = i + 1; j < tokens; ++j) mask.set({i, j}, 1.0);
  }
  return mask;
}

TEST(StateDict, PassesOverTheBooksMasks) {
  const auto heads = build("MultiHeadAttentionWrapper", {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
  StateDict state = heads->state_dict();
  for (const char* name : {"heads.7.mask", "foo.mask"}) {
    StateDict other = state;
    other[name] = causal_mask(6, DType::f32);
    expect_error(Kind::data, {"only this module's", name}, [&] { heads->load_state_dict(other); });
  }
  for (const char* name : {"mask", "heads.0.mask", "heads.1.mask"}) {
    state[name] = causal_mask(6, name == std::string("mask") ? DType::boolean : DType::f32);
  }
  heads->load_state_dict(state);
  EXPECT_EQ(heads->state_dict().size(), state.size() - 3);
  state["unmask"] = Tensor::ones({6, 6});
  expect_error(Kind::data, {"only this module's", "unmask"}, [&] { heads->load_state_dict(state); });
}

TEST(StateDict, RefusesAMaskThatHidesOtherKeys) {
  const auto heads = build("MultiHeadAttentionWrapper", {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
  StateDict state = heads->state_dict();
  Tensor window = causal_mask(6, DType::f32);
  window.set({5, 0}, 1.0);
  for (const Tensor& mask :
       {Tensor::ones({6, 6}), Tensor::zeros({6, 6}), window, Tensor::zeros({1, 6, 6}), Tensor::zeros({0, 0})}) {
    state["heads.1.mask"] = mask;
    expect_error(Kind::data, {"heads.1.mask that hides the keys after each query", "another mask"},
                 [&] { heads->load_state_dict(state); });
  }
}

TEST(StateDict, LoadsOtherFloatsAsFloat32) {
  const auto module = build("CausalAttention", {.d_in = 3, .d_out = 4}, seeded());
  StateDict state = module->state_dict();
  for (auto& [name, value] : state) value = Tensor::full(value.shape(), 0.5, DType::bf16);
  module->load_state_dict(state);
  EXPECT_EQ(module->parameters()[0]->value.dtype(), DType::f32);
  EXPECT_EQ(values(module->parameters()[0]->value), std::vector<double>(12, 0.5));
}

TEST(StateDict, LoadsAllOrNothing) {
  const auto module = build("CausalAttention", {.d_in = 3, .d_out = 4}, seeded());
  const auto unchanged = [&, before = build("CausalAttention", {.d_in = 3, .d_out = 4}, seeded())->state_dict()] {
    for (const auto& [name, value] : module->state_dict()) EXPECT_TRUE(identical(value, before.at(name))) << name;
  };
  StateDict zeros;
  for (const auto& [name, value] : module->state_dict()) zeros[name] = Tensor::zeros(value.shape());
  const auto refuse = [&](Kind kind, const std::vector<std::string>& parts,
                          const std::function<void(StateDict&)>& break_it) {
    StateDict state = zeros;
    break_it(state);
    expect_error(kind, parts, [&] { module->load_state_dict(state); });
    unchanged();
  };
  refuse(Kind::data, {"W_value.weight", "W_key.weight, W_query.weight"}, [](auto& s) { s.erase("W_value.weight"); });
  refuse(Kind::data, {"W_value.weight within the range of float32"},
         [](auto& s) { s["W_value.weight"] = Tensor::full(s["W_value.weight"].shape(), 1e300, DType::f64); });
  refuse(Kind::data, {"only this module's", "W_out"}, [](auto& s) { s["W_out"] = Tensor::zeros({1}); });
  refuse(Kind::shape, {"W_value.weight of shape (4, 3)", "(3, 4)"}, [](auto& s) {
    s["W_value.weight"] = Tensor::zeros({3, 4});
  });
  refuse(Kind::dtype, {"floating", "int64"}, [](auto& s) { s["W_value.weight"] = Tensor::zeros({4, 3}, DType::i64); });
  refuse(Kind::shape, {"W_value.weight"}, [](auto& s) { s["W_value.weight"] = {}; });
  refuse(Kind::data, {"no tensors"}, [](auto& s) { s.clear(); });
}

// ---- construction -------------------------------------------------------------------------

TEST(Construction, LinearDrawsWeightThenBiasWithinItsBound) {
  Generator rng(7), same(7);
  Linear linear(5, 4, true, rng);
  const double bound = 1 / std::sqrt(5.0);
  EXPECT_TRUE(identical(linear.weight.value, same.uniform({4, 5}, -bound, bound)));
  EXPECT_TRUE(identical(linear.bias.value, same.uniform({4}, -bound, bound)));
  EXPECT_EQ(rng.next_u32(), same.next_u32());
}

TEST(Construction, LayersAreDrawnInTheAskedOrder) {
  const double bound = 1 / std::sqrt(3.0);
  const auto order_of = [&](const char* name, std::optional<LayerOrder> order) {
    const auto module = build(name, {.d_in = 3, .d_out = 4, .layer_order = order}, seeded(7));
    Generator same(7);
    std::string found;
    for (int i = 0; i < 3; ++i) {
      const Tensor next = same.uniform({4, 3}, -bound, bound);
      for (const auto& [key, value] : module->state_dict()) {
        if (key.find("W_") != std::string::npos && identical(value, next)) found += key[key.find("W_") + 2];
      }
    }
    return found;
  };
  for (const char* name :
       {"SelfAttentionV2", "CausalAttention", "MultiHeadAttention", "CrossAttention", "MultiHeadAttentionWrapper"}) {
    EXPECT_EQ(order_of(name, {}), "qkv") << name;
    EXPECT_EQ(order_of(name, LayerOrder::kqv), "kqv") << name;
  }
  EXPECT_EQ(order_of("SelfAttentionHead", {}), "kqv");
  EXPECT_EQ(order_of("SelfAttentionHead", LayerOrder::qkv), "qkv");
}

TEST(Construction, RefusesWhatCannotBe) {
  const auto refuse = [](const std::vector<std::string>& parts, const ModuleConfig& config) {
    expect_error(Kind::argument, parts, [&] { build("MultiHeadAttention", config, seeded()); });
    if (config.num_heads == 1) expect_error(Kind::argument, parts, [&] { build("CausalAttention", config, seeded()); });
  };
  refuse({"d_out divisible by num_heads", "d_out = 3, num_heads = 2"}, {.d_in = 3, .d_out = 3, .num_heads = 2});
  refuse({"d_in of at least 1", "0"}, {.d_in = 0, .d_out = 3});
  refuse({"d_out of at least 1", "-1"}, {.d_in = 3, .d_out = -1});
  refuse({"num_heads of at least 1"}, {.d_in = 3, .d_out = 3, .num_heads = 0});
  refuse({"context_length >= 0"}, {.d_in = 3, .d_out = 3, .context_length = -1});
  for (const double p : {-0.1, 1.1, kNan}) refuse({"dropout in [0, 1]"}, {.d_in = 3, .d_out = 3, .dropout = p});
  expect_error(Kind::argument, {"num_heads"},
               [] { build("MultiHeadAttentionWrapper", {.d_in = 3, .d_out = 3, .num_heads = 0}, seeded()); });
  for (const auto& [d_in, d_out] : {std::pair{0, 3}, {3, 0}}) {
    EXPECT_THROW(build("SelfAttentionV1", {.d_in = d_in, .d_out = d_out}, seeded()), Error);
    Generator rng(1);
    EXPECT_THROW(Linear(d_in, d_out, true, rng), Error);
  }
}

TEST(Construction, RefusesOptionsThatAModuleDoesNotHave) {
  const auto refuse = [](const char* name, const std::vector<std::string>& parts,
                         const std::function<void(ModuleConfig&)>& set) {
    ModuleConfig config{.d_in = 4, .d_out = 4, .num_heads = 2};
    set(config);
    SCOPED_TRACE(name);
    expect_error(Kind::argument, parts, [&] { build(name, config, seeded()); });
  };
  const auto kv_heads = [](ModuleConfig& c) { c.kv_heads = 3; };
  const auto head_dim = [](ModuleConfig& c) { c.head_dim = 2; };
  const auto latents = [](ModuleConfig& c) { c.latents.query = 2; };
  for (const char* name :
       {"SelfAttentionV2", "SelfAttentionHead", "CausalAttention", "MultiHeadAttentionWrapper", "SelfAttentionV1"}) {
    for (const auto& set : {std::function<void(ModuleConfig&)>(kv_heads), {head_dim}}) refuse(name, {}, set);
  }
  for (const char* name : {"SelfAttentionV1", "SelfAttentionV2", "MultiHeadAttention", "MultiHeadAttentionWrapper",
                           "CrossAttention", "LinearAttention", "DeltaNet", "GatedDeltaNet"}) {
    refuse(name, {}, latents);
  }
  refuse("SelfAttentionV1", {"d_in and d_out alone"}, [](ModuleConfig& c) { c.window = 2; });
  refuse("SelfAttentionV1", {"d_in and d_out alone"}, [](ModuleConfig& c) { c.sinks = true; });
  refuse("DeltaNet", {"latents or norm"}, [](ModuleConfig& c) { c.norm = NormForm::layer; });
}

// What a module has no place for is refused, and not dropped.
TEST(Construction, RefusesOptionsWithoutEffect) {
  using Set = std::function<void(ModuleConfig&)>;
  const auto refuse = [](std::string_view name, const char* part, const Set& set) {
    ModuleConfig config{.d_in = 4, .d_out = 4};
    Generator rng(1);
    EXPECT_NO_THROW(module_kind(name).make(config, rng));
    set(config);
    SCOPED_TRACE(name);
    expect_error(Kind::argument, {part}, [&] { module_kind(name).make(config, rng); });
  };
  const Set heads = [](ModuleConfig& c) { c.num_heads = 2; };
  const Set rope = [](ModuleConfig& c) { c.rope = rotary_frequencies({.head_dim = 4}, 8); };
  for (const char* name : {"self-v2", "head", "causal"}) refuse(name, "one head", heads);
  refuse("heads", "keys of their own", [](ModuleConfig& c) { c.num_heads = 4, c.kv_heads = 2; });
  refuse("cross", "no rope", rope);
  for (const char* name : {"simple", "average", "self-v1"}) {
    for (const Set& set :
         {heads, rope, Set([](ModuleConfig& c) { c.dropout = 0.5; }), Set([](ModuleConfig& c) { c.scale = 1; }),
          Set([](ModuleConfig& c) { c.qkv_bias = true; })}) {
      refuse(name, "d_in and d_out alone", set);
    }
  }
}

TEST(Construction, WhatWasMovedFromSaysSo) {
  Generator rng(1);
  Generator other = std::move(rng);
  EXPECT_EQ(rng.next_u32(), 1791095845u) << "the stream is shared";  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(other.next_u32(), 4282876139u);
  const ModuleConfig config{.d_in = 4, .d_out = 4};
  const Tensor x = draw({3, 4});
  const auto moved_from = [&](auto module) {
    module.forward(x);
    const auto taken = std::move(module);
    expect_error(Kind::argument, {"one that was moved from"}, [&] { module.forward(x); });  // NOLINT
    EXPECT_THROW(module.backward(x), Error);                                                // NOLINT
  };
  moved_from(MultiHeadAttention(config, rng));
  moved_from(MultiHeadAttentionWrapper(config, rng));
  moved_from(GatedDeltaNet(config, rng));
  moved_from(SelfAttentionV1(4, 4, rng));
}

TEST(Construction, PartsThatWereMovedFromSaySo) {
  const auto moved_from = [](auto module) {
    const auto taken = std::move(module);
    expect_error(Kind::argument, {"moved from"}, [&] { module.forward(Tensor::ones({3, 4})); });  // NOLINT
  };
  moved_from(Linear(4, 4, true));
  moved_from(LayerNorm(4));
  moved_from(FeedForward({.width = 4}));
}

TEST(Construction, Gpt2Sizes) {
  const std::vector<std::tuple<const char*, int, int>> all{
      {"117M", 768, 12}, {"345M", 1024, 16}, {"762M", 1280, 20}, {"1.5B", 1600, 25}};
  for (const auto& [size, d, heads] : all) {
    const ModuleConfig c = gpt2_attention(size);
    EXPECT_EQ(c.d_in, d);
    EXPECT_EQ(c.d_out, d);
    EXPECT_EQ(c.num_heads, heads);
    EXPECT_EQ(c.context_length, 1024);
    EXPECT_TRUE(c.qkv_bias);
  }
  expect_error(Kind::argument, {"117M, 345M, 762M or 1.5B", "found 7B"}, [] { gpt2_attention("7B"); });
}

// ---- train and eval ---------------------------------------------------------------------

TEST(Modes, DropoutActsInTrainModeOnly) {
  for (const std::string name : {"SelfAttentionV2", "SelfAttentionHead", "CausalAttention", "CrossAttention",
                                 "MultiHeadAttention", "MultiHeadAttentionWrapper"}) {
    SCOPED_TRACE(name);
    Generator rng(1);
    const auto module = build(name, {.d_in = 3, .d_out = 4, .dropout = 0.5, .num_heads = 2}, rng);
    EXPECT_FALSE(module->training());
    const Tensor x = draw({8, 3}), z = module->forward(x);
    EXPECT_TRUE(identical(module->forward(x), z));
    module->train();
    EXPECT_TRUE(module->training());
    const Tensor first = module->forward(x), second = module->forward(x);
    EXPECT_FALSE(identical(first, z));
    EXPECT_FALSE(identical(first, second));
    module->eval();
    EXPECT_TRUE(identical(module->forward(x), z));
  }
}

TEST(Modes, DroppedWeightsAreTheStreamsMask) {
  for (const auto flavour : {DropoutFlavour::native, DropoutFlavour::mkl}) {
    Generator rng(1, flavour), same(1, flavour);
    MultiHeadAttention mha({.d_in = 3, .d_out = 4, .dropout = 0.5, .num_heads = 2}, rng);
    MultiHeadAttention twin({.d_in = 3, .d_out = 4, .dropout = 0.5, .num_heads = 2}, same);
    mha.train();
    Trace steps;
    mha.forward(draw({2, 6, 3}), &steps);
    const auto keep = values(same.dropout_keep({2, 2, 6, 6}, 0.5));
    const auto weights = values(steps["weights"]), dropped = values(steps["dropped"]);
    for (std::size_t i = 0; i < keep.size(); ++i) EXPECT_EQ(dropped[i], keep[i] != 0 ? 2 * weights[i] : 0);
  }
}

TEST(Modes, ATraceDoesNotChangeTheDraws) {
  Generator a(1), b(1);
  const ModuleConfig config{.d_in = 3, .d_out = 4, .dropout = 0.5, .num_heads = 2};
  MultiHeadAttention traced(config, a), plain(config, b);
  traced.train(), plain.train();
  Trace steps;
  const Tensor x = draw({6, 3});
  expect_close(traced.forward(x, &steps), plain.forward(x), 1e-6, "the same mask");
  EXPECT_EQ(a.next_u32(), b.next_u32());
}

TEST(Modes, DroppingEverythingLeavesTheOutputBias) {
  Generator rng(1);
  MultiHeadAttention mha({.d_in = 3, .d_out = 4, .dropout = 1}, rng);
  mha.train();
  const Tensor z = mha.forward(draw({5, 3})), bias = mha.state_dict().at("out_proj.bias");
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_TRUE(identical(z.select(0, i).contiguous(), bias));
}

// ---- traces -------------------------------------------------------------------------------

std::string steps_of(const std::string& name, const Shape& shape, bool train = false) {
  const auto module = build(name, {.d_in = 3, .d_out = 4, .dropout = 0.5, .num_heads = 2}, seeded());
  module->train(train);
  Trace trace;
  module->forward(draw(shape), &trace);
  std::string all;
  for (const auto& [step, value] : trace.steps()) all += step + value.shape().str() + " ";
  return all;
}

TEST(Traces, NamesAndShapesWithoutABatch) {
  EXPECT_EQ(steps_of("SimplifiedSelfAttention", {5, 3}), "inputs(5, 3) scores(5, 5) weights(5, 5) context(5, 3) ");
  EXPECT_EQ(steps_of("AveragePast", {5, 3}), "inputs(5, 3) weights(5, 5) context(5, 3) ");
  const std::string head = "inputs(5, 3) queries(5, 4) keys(5, 4) values(5, 4) scores(5, 5) scaled(5, 5) ";
  const std::string tail = "weights(5, 5) context(5, 4) ";
  EXPECT_EQ(steps_of("SelfAttentionV1", {5, 3}), head + tail);
  EXPECT_EQ(steps_of("SelfAttentionV2", {5, 3}), head + tail);
  EXPECT_EQ(steps_of("CausalAttention", {5, 3}), head + "masked(5, 5) " + tail);
  EXPECT_EQ(steps_of("CausalAttention", {5, 3}, true),
            head + "masked(5, 5) weights(5, 5) dropped(5, 5) context(5, 4) ");
  EXPECT_EQ(steps_of("MultiHeadAttention", {5, 3}),
            "inputs(5, 3) queries(2, 5, 2) keys(2, 5, 2) values(2, 5, 2) scores(2, 5, 5) scaled(2, 5, 5) "
            "masked(2, 5, 5) weights(2, 5, 5) context(2, 5, 2) merged(5, 4) output(5, 4) ");
}

TEST(Traces, NamesAndShapesWithABatch) {
  EXPECT_EQ(steps_of("SimplifiedSelfAttention", {2, 5, 3}),
            "inputs(2, 5, 3) scores(2, 5, 5) weights(2, 5, 5) context(2, 5, 3) ");
  EXPECT_EQ(steps_of("SelfAttentionV1", {2, 5, 3}),
            "inputs(2, 5, 3) queries(2, 5, 4) keys(2, 5, 4) values(2, 5, 4) scores(2, 5, 5) scaled(2, 5, 5) "
            "weights(2, 5, 5) context(2, 5, 4) ");
  EXPECT_EQ(steps_of("MultiHeadAttention", {3, 5, 3}, true),
            "inputs(3, 5, 3) queries(3, 2, 5, 2) keys(3, 2, 5, 2) values(3, 2, 5, 2) scores(3, 2, 5, 5) "
            "scaled(3, 2, 5, 5) masked(3, 2, 5, 5) weights(3, 2, 5, 5) dropped(3, 2, 5, 5) context(3, 2, 5, 2) "
            "merged(3, 5, 4) output(3, 5, 4) ");
}

TEST(Traces, HeadsOneAfterTheOtherAreNumbered) {
  const std::string all = steps_of("MultiHeadAttentionWrapper", {5, 3});
  EXPECT_EQ(all.rfind("inputs(5, 3) heads.0.inputs(5, 3) heads.0.queries(5, 4) ", 0), 0u) << all;
  EXPECT_NE(all.find("heads.1.context(5, 4) merged(5, 8) "), std::string::npos) << all;
}

TEST(Traces, CrossAttentionRecordsItsSource) {
  Generator rng(1);
  CrossAttention cross({.d_in = 3, .d_out = 4}, rng);
  Trace trace;
  cross.forward(draw({2, 3}, 1), draw({7, 3}, 2), &trace);
  EXPECT_EQ(trace["source"].shape(), (Shape{7, 3}));
  EXPECT_EQ(trace["queries"].shape(), (Shape{2, 4}));
  EXPECT_EQ(trace["weights"].shape(), (Shape{2, 7}));
  EXPECT_FALSE(trace.contains("masked"));
}

TEST(Traces, TheLastStepIsTheOutputAndTracingChangesNothing) {
  for (const std::string& name : kAll) {
    const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
    Trace trace;
    const Tensor x = draw({2, 5, 3}), z = module->forward(x, &trace);
    EXPECT_TRUE(identical(trace.steps().back().second.contiguous(), z.contiguous())) << name;
    EXPECT_TRUE(identical(trace["inputs"], x)) << name;
    expect_close(module->forward(x), z, 1e-6, name);
  }
}

}  // namespace
}  // namespace attn::test
