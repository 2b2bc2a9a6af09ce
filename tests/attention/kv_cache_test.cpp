// The key-value cache: what it keeps, attention to it against the composed steps on the same rows, and that neither
// pages, threads nor other batch items change a bit. The whole program runs once for every instruction set.
#include "attn/kv_cache.hpp"

#include <omp.h>

#include <algorithm>

#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

constexpr DType kStored[] = {DType::f32, DType::bf16, DType::f16, DType::i8};
constexpr DType kQueries[] = {DType::f32, DType::bf16, DType::f16};

KVCacheConfig random_config(std::mt19937& rng) {
  KVCacheConfig c;
  c.batch = pick(rng, 1, 3), c.kv_heads = pick(rng, 1, 3);
  c.head_dim = pick(rng, 1, 70), c.value_dim = chance(rng, 0.5) ? 0 : pick(rng, 1, 70);
  c.dtype = kStored[pick(rng, 0, 3)];
  c.page_size = chance(rng, 0.3) ? 0 : pick(rng, 1, 40);
  c.capacity = chance(rng, 0.5) ? 0 : pick(rng, 1, 200);
  return c;
}

std::int64_t value_dim(const KVCacheConfig& c) { return c.value_dim == 0 ? c.head_dim : c.value_dim; }

// Rows in the stored dtype, or float32 for int8: what the cache must give back, but for int8's rounding.
DType kept_dtype(const KVCacheConfig& c) { return c.dtype == DType::i8 ? DType::f32 : c.dtype; }

struct Rows {
  Tensor k, v;  // (b, hkv, t, d), (b, hkv, t, dv)
};

Rows random_rows(std::mt19937& rng, const KVCacheConfig& c, std::int64_t tokens) {
  return {uniform(rng, {c.batch, c.kv_heads, tokens, c.head_dim}, kept_dtype(c)),
          uniform(rng, {c.batch, c.kv_heads, tokens, value_dim(c)}, kept_dtype(c))};
}

// Each item gets its first lengths[b] rows, in pieces, now and then some of them twice.
void fill(std::mt19937& rng, KVCache& cache, const Rows& rows, const std::vector<std::int64_t>& lengths) {
  const auto part = [](const Tensor& t, std::int64_t b, std::int64_t from, std::int64_t to) {
    return t.select(0, b).slice(1, from, to);
  };
  for (std::int64_t b = 0; b < cache.config().batch; ++b) {
    const std::int64_t wanted = lengths[static_cast<std::size_t>(b)];
    while (cache.length(b) < wanted) {
      const std::int64_t from = cache.length(b), to = std::min(wanted, from + pick(rng, 0, 150));
      cache.append(b, part(rows.k, b, from, to), part(rows.v, b, from, to));
      if (chance(rng, 0.2)) cache.truncate(b, pick(rng, 0, cache.length(b)));
    }
  }
}

std::vector<std::int64_t> random_lengths(std::mt19937& rng, const KVCacheConfig& c, std::int64_t most) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < c.batch; ++b) lengths.push_back(chance(rng, 0.1) ? 0 : pick(rng, 1, most));
  return lengths;
}

// ---- what it keeps ------------------------------------------------------------------------

TEST(KVCache, KeepsItsRows) {
  for_seeds(30, [](std::mt19937& rng) {
    const KVCacheConfig config = random_config(rng);
    const Rows rows = random_rows(rng, config, 400);
    const auto lengths = random_lengths(rng, config, 400);
    KVCache cache(config);
    fill(rng, cache, rows, lengths);
    for (std::int64_t b = 0; b < config.batch; ++b) {
      const std::int64_t n = lengths[static_cast<std::size_t>(b)];
      ASSERT_EQ(cache.length(b), n);
      const Tensor k = rows.k.select(0, b).slice(1, 0, n), v = rows.v.select(0, b).slice(1, 0, n);
      if (config.dtype != DType::i8) {
        EXPECT_TRUE(identical(cache.keys(b), k.clone()));
        EXPECT_TRUE(identical(cache.values(b), v.clone()));
        continue;
      }
      expect_close(cache.keys(b), k, 1.001 / 254, "keys");  // of the row's largest, which is below 1
      expect_close(cache.values(b), v, 1.001 / 254, "values");
    }
  });
}

TEST(KVCache, Int8IsSymmetricByRow) {
  KVCache cache({.head_dim = 4, .dtype = DType::i8});
  const Tensor k = Tensor::of({{-127, 64, 0, 127}, {1e-3f, -2e-3f, 0, 5e-4f}, {0, 0, 0, 0}}).view({1, 1, 3, 4});
  cache.append(k, k);
  const Tensor kept = cache.keys(0);
  EXPECT_THAT(values(kept.slice(1, 0, 1)), testing::ElementsAre(-127, 64, 0, 127));
  EXPECT_FLOAT_EQ(static_cast<float>(kept.at({0, 1, 1})), -2e-3f);
  EXPECT_THAT(values(kept.slice(1, 2, 3)), testing::Each(0));
  Tensor broken = k.clone();
  broken.set({0, 0, 1, 2}, kInf);
  cache.append(broken, k);
  for (const double x : values(cache.keys(0).slice(1, 4, 5))) EXPECT_TRUE(std::isnan(x));
  expect_finite(cache.keys(0).slice(1, 0, 4), "the other rows");
}

TEST(KVCache, FiniteStaysFinite) {
  for (const DType dtype : kStored) {
    KVCache cache({.head_dim = 2, .dtype = dtype});
    cache.append(Tensor::full({1, 1, 1, 2}, 1e300, DType::f64), Tensor::full({1, 1, 1, 2}, -1e300, DType::f64));
    expect_finite(cache.keys(0), "keys"), expect_finite(cache.values(0), "values");
    EXPECT_GT(cache.keys(0).at({0, 0, 0}), 6e4);
    EXPECT_LT(cache.values(0).at({0, 0, 0}), -6e4);
  }
}

TEST(KVCache, PagesAreUsedAgain) {
  KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 8, .page_size = 16, .capacity = 64});
  const std::size_t before = cache.bytes();
  EXPECT_GE(before, 2u * 64 * 2 * 16 * sizeof(float));
  const Tensor rows = Tensor::ones({2, 100, 8});
  cache.append(0, rows, rows);  // takes what the other item had reserved only once that gives it back
  const std::size_t grown = cache.bytes();
  for (int i = 0; i < 50; ++i) {
    cache.clear();
    cache.append(i % 2, rows, rows);
  }
  EXPECT_LE(cache.bytes(), grown);
}

TEST(KVCache, AClonesLifeIsItsOwn) {
  for_seeds(10, [](std::mt19937& rng) {
    const KVCacheConfig config = random_config(rng);
    const Rows rows = random_rows(rng, config, 100);
    KVCache cache(config);
    cache.append(rows.k.slice(2, 0, 60), rows.v.slice(2, 0, 60));
    KVCache copy = cache.clone();
    const Tensor k = cache.keys(0), v = cache.values(0);
    copy.truncate(20);
    copy.append(rows.k.slice(2, 60, 100), rows.v.slice(2, 60, 100));
    EXPECT_TRUE(identical(cache.keys(0), k));
    EXPECT_TRUE(identical(copy.values(0).slice(1, 0, 20).clone(), v.slice(1, 0, 20).clone()));
    KVCache moved = std::move(copy);
    EXPECT_EQ(moved.max_length(), 60);
    expect_error(Kind::argument, {"moved from"}, [&] { copy.lengths(); });
  });
}

// ---- attention to it ----------------------------------------------------------------------

struct Call {
  KVCacheConfig config;
  std::vector<std::int64_t> lengths;
  Rows rows;
  Tensor q;
  AttentionOptions options;
};

Call random_call(std::mt19937& rng) {
  Call call;
  call.config = random_config(rng);
  call.lengths = random_lengths(rng, call.config, chance(rng, 0.3) ? 1300 : 200);
  const std::int64_t longest = *std::max_element(call.lengths.begin(), call.lengths.end());
  call.rows = random_rows(rng, call.config, longest);
  const std::int64_t b = call.config.batch, hq = call.config.kv_heads * pick(rng, 1, 5);
  const std::int64_t tq = chance(rng, 0.2) ? pick(rng, 5, 20) : pick(rng, 1, 4);
  call.q = uniform(rng, {b, hq, tq, call.config.head_dim}, kQueries[pick(rng, 0, 2)], -2, 2);
  Mask& mask = call.options.mask;
  if (chance(rng, 0.5)) mask.align = Align::bottom_right;
  mask.is_causal = chance(rng, 0.5);
  if (chance(rng, 0.3)) mask.window_left = pick(rng, 0, longest);
  if (chance(rng, 0.2)) mask.window_right = pick(rng, 0, longest);
  if (chance(rng, 0.3)) mask.keep = booleans(rng, {b, 1, tq, longest}, 0.7);
  if (chance(rng, 0.3)) mask.bias = uniform(rng, {hq, 1, longest}, DType::f32, -2, 2);
  if (chance(rng, 0.3)) call.options.softcap = 2;
  if (chance(rng, 0.3)) call.options.alibi_slopes = uniform(rng, {hq}, DType::f32, 0, 0.5);
  if (chance(rng, 0.3)) call.options.sinks = uniform(rng, {hq}, DType::f32, -2, 2);
  if (chance(rng, 0.3)) call.options.dropout = 0.3, call.options.dropout_key = rng();
  call.options.return_weights = chance(rng, 0.2);
  return call;
}

KVCache filled(const Call& call, const KVCacheConfig& config) {
  std::mt19937 rng(1);
  KVCache cache(config);
  fill(rng, cache, call.rows, call.lengths);
  return cache;
}

// The composed steps, which a trace asks for, on what the cache says that it holds.
AttentionResult exact(const Call& call, const KVCache& cache) {
  const std::int64_t longest = cache.max_length();
  const KVCacheConfig& c = cache.config();
  const Tensor k = Tensor::zeros({c.batch, c.kv_heads, longest, c.head_dim});
  const Tensor v = Tensor::zeros({c.batch, c.kv_heads, longest, c.value_dim});
  for (std::int64_t b = 0; b < c.batch; ++b) {
    k.select(0, b).slice(1, 0, cache.length(b)).copy_from(cache.keys(b));
    v.select(0, b).slice(1, 0, cache.length(b)).copy_from(cache.values(b));
  }
  AttentionOptions options = call.options;
  options.mask.key_lengths = cache.lengths();
  Trace steps;
  return attention(call.q.to(DType::f32), k, v, options, &steps);
}

// Of the largest value: float32's sums; the output's, and where q and cache share a 16-bit dtype the weights',
// rounding.
double tolerance(const Tensor& q) {
  if (q.dtype() == DType::f32) return 32 * 0x1p-24;
  return q.dtype() == DType::bf16 ? 4 * 0x1p-9 : 4 * 0x1p-12;
}

TEST(KVCacheAttention, EqualsTheComposedSteps) {
  for_seeds(120, [](std::mt19937& rng) {
    const Call call = random_call(rng);
    SCOPED_TRACE("q " + call.q.shape().str() + " " + std::string(name(call.q.dtype())) + ", cache " +
                 std::string(name(call.config.dtype)) + ", pages of " + std::to_string(call.config.page_size));
    const KVCache cache = filled(call, call.config);
    const AttentionResult found = attention(call.q, cache, call.options), expected = exact(call, cache);
    EXPECT_EQ(found.output.dtype(), call.q.dtype());
    expect_close(found.output, expected.output, tolerance(call.q), "output");
    expect_close(found.lse, expected.lse, tolerance(call.q), "lse");
    ASSERT_EQ(found.weights.defined(), call.options.return_weights);
    if (found.weights.defined()) expect_close(found.weights, expected.weights, tolerance(call.q), "weights");
  });
}

AttentionResult on_threads(int threads, const Call& call, const KVCache& cache) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  AttentionResult result = attention(call.q, cache, call.options);
  omp_set_num_threads(before);
  return result;
}

TEST(KVCacheAttention, NeitherPagesNorThreadsChangeABit) {
  for_seeds(30, [](std::mt19937& rng) {
    Call call = random_call(rng);
    call.config.page_size = 0;
    const AttentionResult whole = on_threads(1, call, filled(call, call.config));
    for (const int threads : {1, 2, 5}) {
      KVCacheConfig paged = call.config;
      paged.page_size = threads == 2 ? 64 : pick(rng, 1, 300);
      const AttentionResult found = on_threads(threads, call, filled(call, paged));
      EXPECT_TRUE(identical(found.output, whole.output)) << paged.page_size << ", " << threads << " threads";
      EXPECT_TRUE(identical(found.lse, whole.lse));
    }
  });
}

TEST(KVCacheAttention, ABatchItemAloneIsTheSame) {
  for_seeds(20, [](std::mt19937& rng) {
    Call call = random_call(rng);
    call.options.mask.keep = {}, call.options.mask.bias = {};  // which are as wide as the longest item
    call.options.dropout = 0, call.options.return_weights = false;
    const Tensor whole = attention(call.q, filled(call, call.config), call.options).output;
    for (std::int64_t b = 0; b < call.config.batch; ++b) {
      Call one = call;
      one.config.batch = 1;
      const std::int64_t n = call.lengths[static_cast<std::size_t>(b)];
      one.lengths = {n};
      one.rows = {call.rows.k.slice(0, b, b + 1), call.rows.v.slice(0, b, b + 1)};
      const Tensor alone = attention(call.q.slice(0, b, b + 1), filled(one, one.config), call.options).output;
      EXPECT_TRUE(identical(alone, whole.slice(0, b, b + 1).clone())) << "item " << b;
    }
  });
}

// What a decoder does: token by token, and each output is the row of the whole sequence's causal attention.
TEST(KVCacheAttention, StepByStepIsTheWholeSequence) {
  for_seeds(4, [](std::mt19937& rng) {
    const std::int64_t tokens = 70;
    KVCacheConfig config{.batch = 2, .kv_heads = 2, .head_dim = 24, .page_size = chance(rng, 0.5) ? 16 : 0};
    const Rows rows = random_rows(rng, config, tokens);
    const Tensor q = uniform(rng, {2, 4, tokens, 24}, DType::f32);
    const Mask causal = Mask::causal(Align::bottom_right);
    const Tensor whole = attention(q, rows.k, rows.v, {.mask = causal}).output;
    KVCache cache(config);
    for (std::int64_t t = 0; t < tokens;) {
      const std::int64_t end = std::min(tokens, t + pick(rng, 1, 6));
      cache.append(rows.k.slice(2, t, end), rows.v.slice(2, t, end));
      expect_close(attention(q.slice(2, t, end), cache, {.mask = causal}).output, whole.slice(2, t, end).clone(), 1e-6,
                   "tokens from " + std::to_string(t));
      t = end;
    }
  });
}

// A zero weight takes nothing from its value, and a sum past float32's range is computed again in double.
TEST(KVCacheAttention, IsFiniteAndLeaksNothing) {
  for (const DType dtype : kStored) {
    for (const std::int64_t page_size : {0, 4}) {
      KVCache cache({.kv_heads = 1, .head_dim = 3, .dtype = dtype, .page_size = page_size});
      Tensor k = Tensor::ones({1, 1, 9, 3}), v = Tensor::ones({1, 1, 9, 3});
      for (std::int64_t c = 0; c < 3; ++c) k.set({0, 0, 8, c}, kNan), v.set({0, 0, 8, c}, kNan);
      cache.append(k, v);
      AttentionOptions first_eight;
      first_eight.mask = Mask::window(8, 0, Align::bottom_right) & Mask::causal(Align::bottom_right);
      first_eight.mask.keep = Tensor::ones({9}, DType::boolean);
      first_eight.mask.keep.set({8}, 0);
      const Tensor output = attention(Tensor::ones({1, 2, 1, 3}), cache, first_eight).output;
      EXPECT_THAT(values(output), testing::Each(testing::DoubleNear(1, 1e-6)));
      cache.truncate(8);
      const Tensor huge = Tensor::full({1, 2, 1, 3}, 3e38);
      expect_finite(attention(huge, cache).output, "output");
    }
  }
}

// ---- mistakes -----------------------------------------------------------------------------

TEST(KVCacheMistakes, OfTheConfig) {
  const auto refused = [](const KVCacheConfig& config, Kind kind, const std::vector<std::string>& parts) {
    expect_error(kind, parts, [&] { KVCache cache(config); });
  };
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  refused({.batch = 0}, Kind::argument, {"batch"});
  refused({.batch = huge}, Kind::argument, {"batch"});
  refused({.kv_heads = -1}, Kind::argument, {"kv_heads"});
  refused({.head_dim = 0}, Kind::argument, {"head_dim"});
  refused({.value_dim = -1}, Kind::argument, {"value_dim"});
  refused({.page_size = -1}, Kind::argument, {"page_size"});
  refused({.kv_heads = 1 << 20, .head_dim = 1 << 20, .page_size = 1 << 29}, Kind::argument, {"page_size"});
  refused({.capacity = huge}, Kind::argument, {"capacity"});
  refused({.dtype = DType::f64}, Kind::dtype, {"float64"});
  refused({.dtype = DType::u8}, Kind::dtype, {"uint8"});
}

TEST(KVCacheMistakes, ChangeNothing) {
  std::mt19937 rng(3);
  for (const std::int64_t page_size : {0, 8}) {
    KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 4, .value_dim = 3, .page_size = page_size});
    const Tensor k = uniform(rng, {2, 2, 5, 4}, DType::f32), v = uniform(rng, {2, 2, 5, 3}, DType::f32);
    cache.append(k, v);
    const auto refused = [&](Kind kind, const Tensor& keys, const Tensor& values) {
      expect_error(kind, {}, [&] { cache.append(keys, values); });
    };
    refused(Kind::argument, Tensor{}, v);
    refused(Kind::shape, k, k);
    refused(Kind::shape, v, v);
    refused(Kind::shape, k.slice(2, 0, 4), v);
    refused(Kind::shape, k.slice(0, 0, 1), v.slice(0, 0, 1));
    refused(Kind::shape, k.slice(1, 0, 1), v.slice(1, 0, 1));
    refused(Kind::shape, k.select(0, 0), v.select(0, 0));
    refused(Kind::shape, Tensor::ones({}), v);
    refused(Kind::dtype, k.to(DType::i32), v);
    refused(Kind::dtype, k, v.to(DType::boolean));
    expect_error(Kind::argument, {"item"}, [&] { cache.append(2, k.select(0, 0), v.select(0, 0)); });
    expect_error(Kind::argument, {"item"}, [&] { cache.append(-1, k.select(0, 0), v.select(0, 0)); });
    expect_error(Kind::shape, {"(hkv, t, d)"}, [&] { cache.append(0, k, v); });
    expect_error(Kind::argument, {"item"}, [&] { cache.length(2); });
    expect_error(Kind::argument, {"item"}, [&] { cache.keys(-1); });
    expect_error(Kind::argument, {"length"}, [&] { cache.truncate(0, 6); });
    expect_error(Kind::argument, {"length"}, [&] { cache.truncate(0, -1); });
    // Rows that repeat need no memory themselves; more tokens than a cache may hold, or than there is memory for.
    const Tensor one = Tensor::ones({1, 1, 1, 1});
    refused(Kind::argument, one.expand({2, 2, (std::int64_t{1} << 30) - 1, 4}),
            one.expand({2, 2, (std::int64_t{1} << 30) - 1, 3}));
    EXPECT_THAT(values(cache.lengths()), testing::ElementsAre(5, 5));
    EXPECT_TRUE(identical(cache.keys(1), k.select(0, 1).clone()));
    EXPECT_TRUE(identical(cache.values(0), v.select(0, 0).clone()));
  }
}

TEST(KVCacheMistakes, OfACall) {
  KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 4});
  cache.append(Tensor::ones({2, 2, 5, 4}), Tensor::ones({2, 2, 5, 4}));
  const auto refused = [&](Kind kind, const Tensor& q, const AttentionOptions& options = {}) {
    expect_error(kind, {}, [&] { attention(q, cache, options); });
  };
  const Tensor q = Tensor::ones({2, 4, 1, 4});
  EXPECT_EQ(attention(q, cache).output.shape(), q.shape());
  refused(Kind::dtype, Tensor{});
  refused(Kind::dtype, q.to(DType::f64));
  refused(Kind::dtype, q.to(DType::i8));
  refused(Kind::shape, q.select(0, 0));
  refused(Kind::shape, q.slice(0, 0, 1));
  refused(Kind::shape, q.slice(1, 0, 3));
  refused(Kind::shape, q.slice(3, 0, 3));
  refused(Kind::argument, q, {.mask = Mask::lengths(cache.lengths())});
  AttentionOptions options;
  options.mask.query_starts = options.mask.key_starts = cache.lengths();
  refused(Kind::argument, q, options);
  refused(Kind::shape, q, {.mask = Mask::boolean(Tensor::ones({1, 6}, DType::boolean))});
  refused(Kind::argument, q, {.softcap = -1});
}

TEST(KVCacheAttention, OfAnEmptyCacheIsZeros) {
  for (const DType dtype : kStored) {
    for (const std::int64_t page_size : {0, 4}) {
      KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 4, .dtype = dtype, .page_size = page_size});
      const AttentionResult r = attention(Tensor::ones({2, 4, 1, 4}), cache);
      EXPECT_THAT(values(r.output), testing::Each(0));
      EXPECT_THAT(values(r.lse), testing::Each(-kInf));
      cache.append(1, Tensor::ones({2, 3, 4}), Tensor::ones({2, 3, 4}));  // the first stays empty
      const AttentionResult one = attention(Tensor::ones({2, 4, 1, 4}), cache);
      EXPECT_THAT(values(one.output.select(0, 0)), testing::Each(0));
      EXPECT_THAT(values(one.output.select(0, 1)), testing::Each(testing::DoubleNear(1, 1e-2)));
    }
  }
}

}  // namespace
}  // namespace attn::test
