// RMSNorm, gated feed-forward and grouped-query attention: values against float64 loops, gradients against their finite
// differences.
#include <map>

#include "attn/language_model.hpp"
#include "lm/double.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

constexpr double kDifference = 1e-5;  // of the largest element

using Weights = std::map<std::string, Tensor>;  // float64, by a parameter's name

// Random weights for a module, and the same in float64.
Weights draw(std::mt19937& rng, Module& module) {
  Weights weights;
  for (Parameter* p : module.parameters()) {
    weights[p->name] = uniform(rng, p->value.shape(), DType::f32, -0.7, 0.7).to(DType::f64);
    p->value = weights[p->name].to(DType::f32);
  }
  return weights;
}

Tensor at(const Weights& weights, const std::string& name) {
  const auto found = weights.find(name);
  return found == weights.end() ? Tensor{} : found->second;
}

void expect_gradients(Module& module, const Weights& weights, const Tensor& x, const Tensor& dx,
                      const std::function<double()>& loss) {
  expect_gradient(dx, x, loss, 1e-5, kDifference, "dx");
  for (const Parameter* p : module.parameters()) {
    expect_gradient(p->grad, weights.at(p->name), loss, 1e-5, kDifference, p->name);
  }
}

TEST(Blocks, RMSNorm) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t rows = pick(rng, 1, 700), width = pick(rng, 1, 40);
    const double epsilon = chance(rng, 0.5) ? 1e-6 : 1e-2, added = chance(rng, 0.5) ? 1 : 0;
    const Tensor x = uniform(rng, {rows, width}, DType::f32, -3, 3).to(DType::f64), dy = uniform(rng, {rows, width});
    RMSNorm norm(width, epsilon, added == 1 ? NormForm::rms_plus_one : NormForm::rms, "n");
    const double begins = norm.weight.value.at({0});
    EXPECT_EQ(begins, 1 - added);
    const Weights weights = draw(rng, norm);
    const Tensor &weight = weights.at("n.weight"), expected = rms_norm_double(x, weight, epsilon, added);
    expect_close(norm.forward(x.to(DType::f32)), expected, 1e-6, "output");
    const Tensor dx = norm.backward(dy.to(DType::f32)).x;
    if (rows * width < 300) {
      const auto loss = [&] { return dot(rms_norm_double(x, weight, epsilon, added), dy); };
      expect_gradients(norm, weights, x, dx, loss);
    }
    // The gradient of a residual path is added.
    const Tensor residual = uniform(rng, {rows, width}, DType::f32), both = norm.backward(dy.to(DType::f32), residual);
    for (std::int64_t i = 0; i < rows; ++i) {
      ASSERT_NEAR(both.at({i, 0}), dx.at({i, 0}) + residual.at({i, 0}), 1e-5);
    }
  });
}

// In bfloat16 Llama's norm is rounded before its weight multiplies it, Gemma's after.
TEST(Blocks, RMSNormRoundsWhereTheFamilyDoes) {
  std::mt19937 rng(3);
  const Tensor x = uniform(rng, {9, 33}, DType::f32, -3, 3);
  for (const NormForm form : {NormForm::rms, NormForm::rms_plus_one}) {
    RMSNorm norm(33, 1e-6, form);
    draw(rng, norm);
    const Tensor weight = norm.weight.value, found = norm.forward(x, DType::bf16);
    norm.weight.value = Tensor::full({33}, form == NormForm::rms ? 1 : 0);
    const Tensor n = norm.forward(x);
    for (std::int64_t i = 0; i < n.numel(); ++i) {
      const std::int64_t row = i / 33, column = i % 33;
      const Tensor one = n.select(0, row).slice(0, column, column + 1);
      const float w = static_cast<float>(weight.at({column})) + (form == NormForm::rms_plus_one ? 1.f : 0.f);
      const Tensor first = form == NormForm::rms ? one.to(DType::bf16) : one;
      const float product = static_cast<float>(first.item()) * w;
      ASSERT_EQ(found.at({row, column}), Tensor::full({1}, product).to(DType::bf16).item()) << i;
    }
  }
}

TEST(Blocks, RMSNormOfHugeRows) {
  RMSNorm norm(4);
  const Tensor y = norm.forward(Tensor::of({3e38f, -3e38f, 1e38f, 0}));
  const double norm_of = std::sqrt((9 + 9 + 1) / 4.0);
  expect_close(y, tensor({3 / norm_of, -3 / norm_of, 1 / norm_of, 0}, {4}), 1e-5, "huge");
}

TEST(Blocks, GatedOverTheWholeRange) {
  for (const Activation kind : {Activation::silu, Activation::gelu_tanh, Activation::gelu}) {
    std::vector<double> all;
    for (double v = -40; v <= 40; v += 0.037) all.push_back(v);
    for (const double v : {0.0, -0.0, 1e-30, -1e-30, 1e20, -1e20, 3e38, -3e38, -88.0, -100.0}) all.push_back(v);
    const Tensor gate = tensor(all, {static_cast<std::int64_t>(all.size())}, DType::f32),
                 up = Tensor::full(gate.shape(), 0.5);
    const Tensor y = gated(gate, up, kind);
    const GatedGradient slope = gated_backward(Tensor::ones(gate.shape()), gate, up, kind);
    for (std::int64_t i = 0; i < gate.numel(); ++i) {
      const double v = gate.at({i}), expected = v < -1e6 ? 0 : activation_double(v, kind);
      EXPECT_NEAR(y.at({i}), 0.5 * expected, 1e-6 * std::fabs(expected) + 4e-7) << v;
      EXPECT_NEAR(slope.up.at({i}), expected, 1e-6 * std::fabs(expected) + 4e-7) << v;
      const auto f = [&](double u) { return activation_double(u, kind); };
      const double expected_slope = std::fabs(v) > 1e6 ? (v > 0 ? 1 : 0) : (f(v + 1e-5) - f(v - 1e-5)) / 2e-5;
      EXPECT_NEAR(slope.gate.at({i}), 0.5 * expected_slope, 2e-6) << v;
    }
  }
  expect_error(Error::Kind::shape, {"one shape"},
               [] { gated(Tensor::ones({2}), Tensor::ones({3}), Activation::silu); });
}

TEST(Blocks, FeedForwardWithAGate) {
  for_seeds(10, [](std::mt19937& rng) {
    const std::int64_t rows = pick(rng, 1, 6), width = pick(rng, 1, 9), inner = pick(rng, 1, 12);
    const auto kind = static_cast<Activation>(pick(rng, 0, 2));
    const bool biased = chance(rng, 0.5);
    FeedForward module({.width = width, .inner_width = inner, .activation = kind, .gated = true, .has_bias = biased},
                       "mlp.");
    const Weights w = draw(rng, module);
    const Tensor x = uniform(rng, {rows, width}, DType::f32).to(DType::f64), dy = uniform(rng, {rows, width});
    const auto forward = [&] {
      const auto layer = [&](const char* name, const Tensor& in) {
        return linear_double(in, w.at(std::string("mlp.") + name + ".weight"),
                             at(w, std::string("mlp.") + name + ".bias"));
      };
      const Tensor gate = layer("gate_proj", x), up = layer("up_proj", x);
      Tensor hidden = gate.clone();
      for (std::int64_t i = 0; i < hidden.numel(); ++i) {
        hidden.data<double>()[i] = activation_double(gate.data<double>()[i], kind) * up.data<double>()[i];
      }
      return layer("down_proj", hidden);
    };
    expect_close(module.forward(x.to(DType::f32)), forward(), 2e-6, "output");
    const Tensor dx = module.backward(dy.to(DType::f32), x.to(DType::f32));
    expect_gradients(module, w, x, dx, [&] { return dot(forward(), dy); });
  });
}

// One text by the definition.
Tensor grouped_double(const Weights& w, const Tensor& x, const ModuleConfig& c, const std::vector<float>& rates) {
  const auto heads = [&](const std::string& name, const Tensor& in) {
    return linear_double(in, w.at(name + ".weight"), at(w, name + ".bias"));
  };
  Tensor q = heads("q_proj", x), k = heads("k_proj", x);
  const double added = c.norm == NormForm::rms_plus_one ? 1 : 0;
  if (c.query_key_norm != QueryKeyNorm::none) {
    const auto norm = [&](const Tensor& in, const char* name) {
      const Tensor weight = w.at(name);
      return rms_norm_double(in.view({-1, weight.numel()}), weight, c.epsilon, added).view(in.shape());
    };
    q = norm(q, "q_norm.weight"), k = norm(k, "k_norm.weight");
  }
  q = turned_double(q, c.head_dim, rates), k = turned_double(k, c.head_dim, rates);
  return heads("o_proj", attention_double(q, k, heads("v_proj", x), c, at(w, "sinks")));
}

TEST(Blocks, GroupedQueryAttention) {
  for_seeds(24, [](std::mt19937& rng) {
    ModuleConfig c;
    c.kv_heads = pick(rng, 1, 3);
    c.num_heads = c.kv_heads * pick(rng, 1, 3);
    c.head_dim = 2 * pick(rng, 1, 4);
    c.d_in = pick(rng, 1, 9);
    c.qkv_bias = chance(rng, 0.5), c.out_bias = chance(rng, 0.5);
    c.query_key_norm = static_cast<QueryKeyNorm>(pick(rng, 0, 2));
    c.norm = chance(rng, 0.5) ? NormForm::rms : NormForm::rms_plus_one;
    c.epsilon = 1e-3;
    c.window = chance(rng, 0.5) ? pick(rng, 1, 4) : 0;
    c.softcap = chance(rng, 0.5) ? 2 : 0;
    c.sinks = chance(rng, 0.5);
    if (chance(rng, 0.5)) c.scale = 0.7;
    AttentionLayer module = grouped_query(c);
    const Weights w = draw(rng, module);
    const std::int64_t tokens = pick(rng, 1, 7);
    const Tensor x = uniform(rng, {tokens, c.d_in}, DType::f32).to(DType::f64), dy = uniform(rng, {tokens, c.d_in});
    RotaryFrequencies rates;
    if (chance(rng, 0.8)) rates = rotary_frequencies({.head_dim = c.head_dim, .theta = 50});
    const RotaryTable turns = rates.inv_freq.empty() ? RotaryTable{} : rotary_table(rates, tokens);
    expect_close(module.forward(x.to(DType::f32), turns), grouped_double(w, x, c, rates.inv_freq), 3e-6, "output");
    const Tensor dx = module.backward(dy.to(DType::f32)).x;
    expect_gradients(module, w, x, dx, [&] { return dot(grouped_double(w, x, c, rates.inv_freq), dy); });

    // A trace tells the same, and so does a cache, a few tokens at a time.
    Trace trace;
    expect_close(module.forward(x.to(DType::f32), turns, &trace), grouped_double(w, x, c, rates.inv_freq), 3e-6,
                 "traced");
    EXPECT_TRUE(trace.contains("weights"));
    EXPECT_EQ(trace.contains("rotated queries"), turns.cos.defined());
    KVCache cache({.batch = 2, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .page_size = 2});
    std::vector<Tensor> rows;
    for (std::int64_t first = 0; first < tokens;) {
      const std::int64_t last = std::min(tokens, first + pick(rng, 1, 6));
      const RotaryTable some = turns.cos.defined() ? rotary_table(rates, last - first, first) : RotaryTable{};
      const Tensor z = module.forward(x.to(DType::f32).slice(0, first, last).unsqueeze(0), some, cache, 1);
      for (std::int64_t i = 0; i < last - first; ++i) rows.push_back(z.select(0, 0).select(0, i));
      const std::int64_t shown = c.window > 0 ? c.window - 1 : cache.length(1);
      cache.forget(1, std::max<std::int64_t>(0, cache.length(1) - shown));
      first = last;
    }
    expect_close(stack(rows), grouped_double(w, x, c, rates.inv_freq), 3e-6, "cached");
  });
}

TEST(Blocks, RefuseWhatDoesNotFit) {
  expect_error(Error::Kind::argument, {"multiple of kv_heads"},
               [] { grouped_query({.d_in = 8, .num_heads = 4, .kv_heads = 3}); });
  AttentionLayer module = grouped_query({.d_in = 4, .num_heads = 2});
  expect_error(Error::Kind::shape, {"(tokens, 4)"}, [&] { module.forward(Tensor::ones({2, 3})); });
  expect_error(Error::Kind::argument, {"forward()"}, [&] { module.backward(Tensor::ones({2, 4})); });
  KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 2});
  expect_error(Error::Kind::shape, {"(1, tokens, d_in)"}, [&] {
    module.forward(Tensor::ones({2, 1, 4}), {}, cache, 0);
  });
  RMSNorm norm(3);
  expect_error(Error::Kind::shape, {"(…, 3)"}, [&] { norm.forward(Tensor::ones({2, 4})); });
}

}  // namespace
}  // namespace attn::test
