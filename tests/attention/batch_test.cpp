// The bits of an item's output and gradients depend on its own queries, keys, values and options alone, as is promised
// of batches. Here each item is computed alone, its keys cut to its length, and among random neighbours: by lengths,
// in packed sequences, in caches and on 1 to 8 threads; sizes lie on both sides of wherever the plans change.
#include <tuple>

#include "attention/tiles.hpp"
#include "attn/kv_cache.hpp"
#include "core/parallel.hpp"
#include "core/threads.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

// Returns those parts of the plans that decide how an item is computed.
auto decided(std::int64_t tq, std::int64_t tk, const kernels::Kernels& kernels) {
  kernels::Problem p{};
  p.batch = p.hq = p.hkv = 1, p.tq = tq, p.tk = tk, p.d = p.dv = 64;
  const kernels::ForwardPlan forward = plan(p, kernels, thread_count());
  const kernels::BackwardPlan backward = plan(p, {}, kernels, thread_count());
  return std::tuple(forward.family, forward.parts, forward.blocks, forward.packs_first, forward.chunks, backward.family,
                    backward.parts, backward.chunks, backward.whole_heads);
}

class Batch : public kernels::CallsOnUnits {
 protected:
  void SetUp() override {
    CallsOnUnits::SetUp();
    if (IsSkipped()) return;
    for (std::int64_t n = 2; n <= 600; ++n) {
      if (decided(160, n, kernels_) != decided(160, n - 1, kernels_)) keys_.push_back(n);
      if (decided(2, n, kernels_) != decided(2, n - 1, kernels_)) keys_.push_back(n);
      if (n <= 200 && decided(n, 300, kernels_) != decided(n - 1, 300, kernels_)) queries_.push_back(n);
    }
    ASSERT_FALSE(keys_.empty());
    ASSERT_FALSE(queries_.empty());
  }

  // Sizes of an item on both sides of where the plans of this unit change, or anything else.
  std::int64_t some_keys(std::mt19937& rng) const { return near(rng, keys_, 600); }
  std::int64_t some_queries(std::mt19937& rng) const { return near(rng, queries_, 160); }

  // Emulated tiles take a hundred times as long.
  unsigned seeds(unsigned count) const { return GetParam() == "amx_emulated" ? (count + 3) / 4 : count; }

 private:
  static std::int64_t near(std::mt19937& rng, const std::vector<std::int64_t>& limits, std::int64_t most) {
    if (chance(rng, 0.3)) return pick(rng, 0, most);
    return limits[static_cast<std::size_t>(pick(rng, 0, static_cast<std::int64_t>(limits.size()) - 1))] +
           pick(rng, -1, 1);
  }

  std::vector<std::int64_t> keys_, queries_;
};

struct Shapes {
  std::int64_t hkv, hq, d, dv;
  DType dtype;
};

Shapes some_shapes(std::mt19937& rng) {
  constexpr std::int64_t depths[] = {8, 31, 32, 48, 64, 72};
  Shapes s{};
  s.hkv = pick(rng, 1, 2), s.hq = s.hkv * pick(rng, 1, 2);
  s.d = depths[pick(rng, 0, 5)], s.dv = chance(rng, 0.5) ? s.d : depths[pick(rng, 0, 5)];
  s.dtype = chance(rng, 0.6) ? DType::f32 : chance(rng, 0.5) ? DType::bf16 : DType::f16;
  return s;
}

// Draws the options that all items have in common.
AttentionOptions some_options(std::mt19937& rng, const Shapes& s) {
  AttentionOptions o;
  o.mask.is_causal = chance(rng, 0.4);
  o.mask.align = chance(rng, 0.5) ? Align::top_left : Align::bottom_right;
  if (chance(rng, 0.4)) o.mask.window_left = chance(rng, 0.5) ? pick(rng, 0, 400) : std::numeric_limits<long>::max();
  if (chance(rng, 0.4)) o.mask.window_right = pick(rng, 0, 300);
  if (chance(rng, 0.3)) o.softcap = 2;
  if (chance(rng, 0.3)) o.alibi_slopes = uniform(rng, {s.hq}, DType::f32, 0, 0.2);
  if (chance(rng, 0.3)) o.sinks = uniform(rng, {s.hq}, DType::f32, -1, 1);
  o.precision = static_cast<Precision>(pick(rng, 0, 2));
  return o;
}

struct Results {
  Tensor output, lse, q, k, v, bias;
};

Results compute(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const AttentionOptions& o) {
  const AttentionResult forward = attention(q, k, v, o);
  const AttentionGradient grad = attention_backward(g, q, k, v, o, forward);
  return {forward.output, forward.lse, grad.q, grad.k, grad.v, grad.bias};
}

void expect_same(const Tensor& among, const Tensor& alone, const char* what) {
  EXPECT_TRUE(identical(among.clone(), alone.clone())) << what;
}

TEST_P(Batch, LengthsOfNeighboursChangeNoBit) {
  for_seeds(seeds(24), [this](std::mt19937& rng) {
    const Shapes s = some_shapes(rng);
    const std::int64_t b = pick(rng, 2, 4), tq = some_queries(rng);
    Tensor lengths = Tensor::empty({b}, DType::i64);
    for (std::int64_t i = 0; i < b; ++i) lengths.data<std::int64_t>()[i] = some_keys(rng);
    const std::int64_t tk = *std::max_element(lengths.data<std::int64_t>(), lengths.data<std::int64_t>() + b);
    const Tensor q = uniform(rng, {b, s.hq, tq, s.d}, s.dtype), k = uniform(rng, {b, s.hkv, tk, s.d}, s.dtype);
    const Tensor v = uniform(rng, {b, s.hkv, tk, s.dv}, s.dtype), g = uniform(rng, {b, s.hq, tq, s.dv}, s.dtype);
    AttentionOptions all = some_options(rng, s);
    all.mask.key_lengths = lengths;
    if (chance(rng, 0.3)) all.mask.keep = booleans(rng, {b, 1, tq, tk}, 0.8);
    if (chance(rng, 0.3)) all.mask.bias = uniform(rng, {b, s.hq, tq, tk}, DType::f32);
    if (chance(rng, 0.3)) all.dropout = 0.25, all.dropout_keep = booleans(rng, {b, s.hq, tq, tk}, 0.75);
    Results among;
    {
      const Threads threads(static_cast<int>(pick(rng, 1, 8)));
      among = compute(q, k, v, g, all);
    }
    for (std::int64_t i = 0; i < b; ++i) {
      const std::int64_t n = lengths.data<std::int64_t>()[i];
      SCOPED_TRACE("item " + std::to_string(i) + ", " + std::to_string(n) + " of " + std::to_string(tk) + " keys, q " +
                   q.shape().str() + ", " + std::string(name(s.dtype)) + ", " + std::string(name(all.precision)));
      const auto own = [i](const Tensor& t) { return t.slice(0, i, i + 1); };
      const auto cut = [&](const Tensor& t, std::int64_t dim) { return t.defined() ? own(t).slice(dim, 0, n) : t; };
      AttentionOptions one = all;
      one.mask.key_lengths = {};
      one.mask.keep = cut(all.mask.keep, 3), one.mask.bias = cut(all.mask.bias, 3);
      one.dropout_keep = cut(all.dropout_keep, 3);
      const Threads threads(static_cast<int>(pick(rng, 1, 8)));
      const Results alone = compute(own(q), cut(k, 2), cut(v, 2), own(g), one);
      expect_same(own(among.output), alone.output, "output");
      expect_same(own(among.lse), alone.lse, "lse");
      expect_same(own(among.q), alone.q, "dq");
      expect_same(cut(among.k, 2), alone.k, "dk");
      expect_same(cut(among.v, 2), alone.v, "dv");
      if (alone.bias.defined()) expect_same(cut(among.bias, 3), alone.bias, "dbias");
      for (const Tensor& t : {among.k, among.v}) {
        for (const double x : values(own(t).slice(2, n, tk))) ASSERT_EQ(x, 0) << "a gradient behind the length";
      }
    }
  });
}

TEST_P(Batch, NeighboursInAPackedBatchChangeNoBit) {
  for_seeds(seeds(24), [this](std::mt19937& rng) {
    const Shapes s = some_shapes(rng);
    const std::int64_t n = pick(rng, 2, 5);
    std::vector<std::int64_t> q_starts{0}, k_starts{0};
    for (std::int64_t i = 0; i < n; ++i) {
      q_starts.push_back(q_starts.back() + (chance(rng, 0.1) ? 0 : some_queries(rng)));
      k_starts.push_back(k_starts.back() + (chance(rng, 0.1) ? 0 : some_keys(rng)));
    }
    const std::int64_t tq = q_starts.back(), tk = k_starts.back();
    const Tensor q = by_token(rng, uniform(rng, {1, s.hq, tq, s.d}, s.dtype));
    const Tensor k = by_token(rng, uniform(rng, {1, s.hkv, tk, s.d}, s.dtype));
    const Tensor v = by_token(rng, uniform(rng, {1, s.hkv, tk, s.dv}, s.dtype));
    const Tensor g = uniform(rng, {1, s.hq, tq, s.dv}, s.dtype);
    AttentionOptions all = some_options(rng, s);
    all.mask.query_starts = integers(q_starts), all.mask.key_starts = integers(k_starts);
    if (chance(rng, 0.3)) all.mask.keep = booleans(rng, {1, s.hq, tq, tk}, 0.8);
    if (chance(rng, 0.3)) all.mask.bias = uniform(rng, {1, tq, tk}, DType::f32);
    Results among;
    {
      const Threads threads(static_cast<int>(pick(rng, 1, 8)));
      among = compute(q, k, v, g, all);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::int64_t q0 = q_starts[i], q1 = q_starts[i + 1], k0 = k_starts[i], k1 = k_starts[i + 1];
      SCOPED_TRACE("sequence " + std::to_string(i) + ", queries " + std::to_string(q0) + ":" + std::to_string(q1) +
                   ", keys " + std::to_string(k0) + ":" + std::to_string(k1) + ", d " + std::to_string(s.d) + ", " +
                   std::string(name(s.dtype)) + ", " + std::string(name(all.precision)));
      const auto queries = [&](const Tensor& t) { return t.slice(2, q0, q1); };
      const auto keys = [&](const Tensor& t) { return t.slice(2, k0, k1); };
      const auto cells = [&](const Tensor& t) { return t.defined() ? t.slice(-2, q0, q1).slice(-1, k0, k1) : t; };
      AttentionOptions one = all;
      one.mask.query_starts = one.mask.key_starts = {};
      one.mask.keep = cells(all.mask.keep), one.mask.bias = cells(all.mask.bias);
      const Threads threads(static_cast<int>(pick(rng, 1, 8)));
      const Results alone = compute(queries(q), keys(k), keys(v), queries(g), one);
      expect_same(queries(among.output), alone.output, "output");
      expect_same(queries(among.lse), alone.lse, "lse");
      expect_same(queries(among.q), alone.q, "dq");
      expect_same(keys(among.k), alone.k, "dk");
      expect_same(keys(among.v), alone.v, "dv");
      if (alone.bias.defined() && s.hq == 1) expect_same(cells(among.bias), alone.bias, "dbias");
    }
  });
}

TEST_P(Batch, NeighboursInACacheChangeNoBit) {
  for_seeds(seeds(24), [this](std::mt19937& rng) {
    const Shapes s = some_shapes(rng);
    constexpr DType kStored[] = {DType::f32, DType::bf16, DType::f16, DType::i8};
    KVCacheConfig config{.batch = pick(rng, 2, 4), .kv_heads = s.hkv, .head_dim = s.d, .value_dim = s.dv};
    config.dtype = kStored[pick(rng, 0, 3)];
    config.page_size = chance(rng, 0.4) ? 0 : pick(rng, 1, 80);
    KVCache cache(config);
    std::vector<Tensor> keys, rows;
    for (std::int64_t i = 0; i < config.batch; ++i) {
      const std::int64_t n = some_keys(rng);
      keys.push_back(uniform(rng, {s.hkv, n, s.d}, DType::f32)),
          rows.push_back(uniform(rng, {s.hkv, n, s.dv}, DType::f32));
      cache.append(i, keys.back(), rows.back());
    }
    const std::int64_t tq = chance(rng, 0.5) ? pick(rng, 1, 4) : some_queries(rng);
    const Tensor q = uniform(rng, {config.batch, s.hq, tq, s.d}, s.dtype);
    const AttentionOptions options = some_options(rng, s);
    AttentionResult among;
    {
      const Threads threads(static_cast<int>(pick(rng, 1, 8)));
      among = attention(q, cache, options);
    }
    for (std::int64_t i = 0; i < config.batch; ++i) {
      SCOPED_TRACE("item " + std::to_string(i) + " of " + std::to_string(cache.length(i)) + " tokens, the longest " +
                   std::to_string(cache.max_length()) + ", q " + q.shape().str());
      KVCacheConfig one = config;
      one.batch = 1;
      one.page_size = chance(rng, 0.4) ? 0 : pick(rng, 1, 80);
      KVCache own(one);
      own.append(0, keys[static_cast<std::size_t>(i)], rows[static_cast<std::size_t>(i)]);
      const Threads threads(static_cast<int>(pick(rng, 1, 8)));
      const AttentionResult alone = attention(q.slice(0, i, i + 1), own, options);
      expect_same(among.output.slice(0, i, i + 1), alone.output, "output");
      expect_same(among.lse.slice(0, i, i + 1), alone.lse, "lse");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Kernels, Batch, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace attn::test
