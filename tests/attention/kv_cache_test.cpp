// The key-value cache: what it keeps, and mistakes, which change nothing.
#include "attention/cached_rows.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

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

// A view may have any stride in every dimension, also in the last, and some reversed.
TEST(KVCache, ReadsRowsOfAnyStrides) {
  for (const DType dtype : kStored) {
    for_seeds(8, [dtype](std::mt19937& rng) {
      KVCacheConfig config = random_config(rng);
      config.dtype = dtype;
      const Rows rows = random_rows(rng, config, 7);
      KVCache cache(config), same(config);
      same.append(rows.k, rows.v);
      if (chance(rng, 0.5)) {
        cache.append(scattered(rng, rows.k), scattered(rng, rows.v));
      } else {
        for (std::int64_t b = 0; b < config.batch; ++b) {
          cache.append(b, scattered(rng, rows.k.select(0, b)), scattered(rng, rows.v.select(0, b)));
        }
      }
      for (std::int64_t b = 0; b < config.batch; ++b) {
        EXPECT_TRUE(identical(cache.keys(b), same.keys(b)));
        EXPECT_TRUE(identical(cache.values(b), same.values(b)));
      }
    });
  }
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

TEST(KVCache, ForgetsItsFirstPagesAndUsesThemAgain) {
  for_seeds(10, [](std::mt19937& rng) {
    KVCacheConfig config = random_config(rng);
    config.dtype = DType::f32, config.page_size = pick(rng, 1, 9), config.capacity = 0;
    const Rows rows = random_rows(rng, config, 300);
    KVCache cache(config);
    const std::int64_t item = config.batch - 1, window = 20;
    const auto some = [&](const Tensor& t, std::int64_t from, std::int64_t to) {
      return t.select(0, item).slice(1, from, to);
    };
    std::size_t bytes = 0;
    for (std::int64_t read = 0; read < 300;) {
      const std::int64_t end = std::min<std::int64_t>(300, read + pick(rng, 1, 10));
      cache.append(item, some(rows.k, read, end), some(rows.v, read, end));
      read = end;
      const std::int64_t spare = std::max<std::int64_t>(0, cache.length(item) - window), held = cache.length(item);
      EXPECT_EQ(cache.forget(item, spare), spare / config.page_size * config.page_size);
      ASSERT_EQ(cache.length(item), held - spare / config.page_size * config.page_size);
      const std::int64_t first = read - cache.length(item);
      EXPECT_TRUE(identical(cache.keys(item), some(rows.k, first, read).clone()));
      EXPECT_TRUE(identical(cache.values(item), some(rows.v, first, read).clone()));
      if (read > 100 && bytes == 0) bytes = cache.bytes();
    }
    EXPECT_LE(cache.bytes(), std::max(2 * bytes, std::size_t{1} << 22));  // a pool grows by 4 MB at most
    expect_error(Kind::argument, {"tokens to forget"}, [&] { cache.forget(item, 1000); });
  });
}

// A quarter of what stays at a time, so that a row is moved four times at most for each that is forgotten.
TEST(KVCache, ForgetsFirstTokensWithoutPages) {
  for_seeds(10, [](std::mt19937& rng) {
    KVCacheConfig config = random_config(rng);
    config.page_size = config.capacity = 0;
    const Rows rows = random_rows(rng, config, 103);
    KVCache cache(config);
    cache.append(rows.k, rows.v);
    const std::int64_t item = config.batch - 1;
    const Tensor k = cache.keys(item), v = cache.values(item);
    EXPECT_EQ(cache.forget(item, 0), 0);
    EXPECT_EQ(cache.forget(item, 20), 0);  // of 83 that would stay
    EXPECT_EQ(cache.length(item), 103);
    EXPECT_EQ(cache.forget(item, 21), 21);
    EXPECT_EQ(cache.length(item), 82);
    EXPECT_TRUE(identical(cache.keys(item), k.slice(1, 21, 103).clone()));
    EXPECT_TRUE(identical(cache.values(item), v.slice(1, 21, 103).clone()));
    EXPECT_EQ(cache.length(0), item > 0 ? 103 : 82);
    EXPECT_EQ(cache.forget(item, 82), 82);
    EXPECT_EQ(cache.length(item), 0);
    EXPECT_EQ(cache.forget(item, 0), 0);
  });
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

}  // namespace
}  // namespace attn::test
