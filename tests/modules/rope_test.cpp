// Modules whose queries and keys turn by their positions: against loops in float64, finite differences, and a cache.
#include <cmath>

#include "modules/helpers.hpp"

namespace attn::test {
namespace {

using Matrix = std::vector<std::vector<double>>;

RotaryFrequencies rope_for(std::int64_t head_dim, RotaryLayout layout = RotaryLayout::halves) {
  return rotary_frequencies({.head_dim = head_dim, .theta = 50, .layout = layout});
}

// x (t, n) times weightᵀ (m, n), and the bias.
Matrix projected(const Matrix& x, const Tensor& weight, const Tensor& bias) {
  Matrix y;
  for (const auto& row : x) {
    auto& out = y.emplace_back();
    for (std::int64_t o = 0; o < weight.size(0); ++o) {
      double sum = bias.defined() ? bias.at({o}) : 0;
      for (std::int64_t i = 0; i < weight.size(1); ++i) sum += row[static_cast<std::size_t>(i)] * weight.at({o, i});
      out.push_back(sum);
    }
  }
  return y;
}

// The product of a query at position i and a key at position j, whose pairs meet at the angle (i - j) · rate.
double score(const std::vector<double>& q, const std::vector<double>& k, std::size_t from, std::size_t i, std::size_t j,
             const RotaryFrequencies& f) {
  double sum = 0;
  const std::size_t half = f.inv_freq.size();
  for (std::size_t p = 0; p < half; ++p) {
    const bool halves = f.layout == RotaryLayout::halves;
    const std::size_t a = from + (halves ? p : 2 * p), b = from + (halves ? p + half : 2 * p + 1);
    const double angle = (static_cast<double>(i) - static_cast<double>(j)) * static_cast<double>(f.inv_freq[p]);
    sum += (q[a] * k[a] + q[b] * k[b]) * std::cos(angle) + (q[a] * k[b] - q[b] * k[a]) * std::sin(angle);
  }
  return sum;
}

// Causal multi-head attention of x (t, n) with rotary positions and an output projection.
Matrix by_loops(Module& module, const Matrix& x, std::size_t heads, const RotaryFrequencies& f) {
  const StateDict w = module.state_dict();
  const auto layer = [&](const Matrix& in, const std::string& name) {
    const auto bias = w.find(name + ".bias");
    return projected(in, w.at(name + ".weight"), bias == w.end() ? Tensor{} : bias->second);
  };
  const Matrix q = layer(x, "W_query"), k = layer(x, "W_key"), v = layer(x, "W_value");
  const std::size_t size = q[0].size() / heads;
  Matrix merged(x.size(), std::vector<double>(q[0].size()));
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      double sum = 0;
      std::vector<double> weights;
      for (std::size_t j = 0; j <= i; ++j) {
        weights.push_back(std::exp(score(q[i], k[j], h * size, i, j, f) / std::sqrt(static_cast<double>(size))));
        sum += weights.back();
      }
      for (std::size_t c = h * size; c < (h + 1) * size; ++c) {
        for (std::size_t j = 0; j <= i; ++j) merged[i][c] += weights[j] / sum * v[j][c];
      }
    }
  }
  return layer(merged, "out_proj");
}

TEST(Rope, MultiHeadAttentionIsTheLoops) {
  for (const auto layout : {RotaryLayout::halves, RotaryLayout::interleaved}) {
    Generator rng(5);
    MultiHeadAttention module({.d_in = 6, .d_out = 16, .num_heads = 2, .qkv_bias = true, .rope = rope_for(8, layout)},
                              rng);
    const Tensor x = draw({9, 6});
    Matrix rows;
    for (std::int64_t i = 0; i < 9; ++i) rows.push_back(values(x.select(0, i)));
    const Matrix expected = by_loops(module, rows, 2, rope_for(8, layout));
    const Tensor found = module.AttentionLayer::forward(x, nullptr);
    for (std::int64_t i = 0; i < 9; ++i) {
      for (std::int64_t c = 0; c < 16; ++c) {
        EXPECT_NEAR(found.at({i, c}), expected[static_cast<std::size_t>(i)][static_cast<std::size_t>(c)], 2e-6);
      }
    }
  }
}

TEST(Rope, GradientsOfEveryModuleThatHasIt) {
  for (const ModuleKind& kind : module_kinds()) {
    if (!kind.uses.rope || kind.uses.latent) continue;  // of a latent's: latent_attention_test.cpp
    SCOPED_TRACE(kind.name);
    const std::int64_t heads = kind.uses.out_proj ? 2 : 1;  // the wrapper's heads, and the single ones, are d_out wide
    Generator rng(3);
    ModuleConfig config{.d_in = 3, .d_out = 4, .num_heads = kind.uses.heads ? 2 : 1};
    const auto plain = kind.make(config, rng);
    config.rope = rope_for(4 / heads);
    const auto module = kind.make(config, rng);
    const Tensor x = draw({2, 5, 3}), g = draw(module->forward(x).shape(), 77);
    plain->load_state_dict(module->state_dict());
    EXPECT_FALSE(identical(module->forward(x), plain->forward(x)));
    module->forward(x);
    const Tensor dx = backward(*module, g);
    const auto loss = [&] { return dot(module->forward(x), g); };
    expect_gradient(dx, x, loss, 5e-3, 4e-4, "dx");
    for (Parameter* p : module->parameters()) expect_gradient(p->grad, p->value, loss, 5e-3, 4e-4, p->name);
  }
}

TEST(Rope, ATraceHoldsWhatWasTurnedAndWhatItBecame) {
  Generator rng(3);
  const RotaryFrequencies f = rope_for(4);
  MultiHeadAttention module({.d_in = 3, .d_out = 8, .num_heads = 2, .rope = f}, rng);
  const Tensor x = draw({5, 3});
  Trace trace;
  const Tensor z = module.AttentionLayer::forward(x, &trace);
  expect_close(module.AttentionLayer::forward(x, nullptr), z, 1e-6, "without a trace");
  std::string names;
  for (const auto& [name, value] : trace.steps()) names.append(name).append(", ");
  EXPECT_EQ(names,
            "inputs, queries, keys, rotated queries, rotated keys, values, scores, scaled, masked, weights, context, "
            "merged, output, ");
  for (const std::string name : {"queries", "keys"}) {
    EXPECT_TRUE(identical(rotary(trace[name], rotary_table(f, 5)), trace["rotated " + name])) << name;
    EXPECT_FALSE(identical(trace[name], trace["rotated " + name])) << name;
  }
}

// A cache's items may be of different lengths: each token turns by its own place.
TEST(Rope, CachedStepsAreTheWholePass) {
  Generator rng(3);
  MultiHeadAttention module({.d_in = 6, .d_out = 16, .num_heads = 2, .rope = rope_for(8)}, rng);
  const Tensor x = draw({2, 9, 6});
  const Tensor whole = module.forward(x);
  KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 8});
  for (const auto& [first, last] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 4}, {4, 5}, {5, 9}}) {
    expect_close(module.forward(x.slice(1, first, last), cache), whole.slice(1, first, last), 1e-6, "step");
  }
  cache.truncate(0, 5);
  cache.truncate(1, 7);
  const Tensor next = Tensor::empty({2, 1, 6});
  next.select(0, 0).copy_from(x.slice(1, 5, 6).select(0, 0));
  next.select(0, 1).copy_from(x.slice(1, 7, 8).select(0, 1));
  const Tensor z = module.forward(next, cache);
  expect_close(z.select(0, 0), whole.slice(1, 5, 6).select(0, 0), 1e-6, "item 0 at position 5");
  expect_close(z.select(0, 1), whole.slice(1, 7, 8).select(0, 1), 1e-6, "item 1 at position 7");
}

TEST(Rope, WiderThanAHeadIsRefused) {
  Generator rng(3);
  expect_error(Error::Kind::argument, {"at most head_dim / 2 pairs, for head_dim = 4; found 4"},
               [&] { MultiHeadAttention({.d_in = 3, .d_out = 8, .num_heads = 2, .rope = rope_for(8)}, rng); });
}

}  // namespace
}  // namespace attn::test
