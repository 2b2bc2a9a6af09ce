// A cache whose values are the first numbers of its keys: beside one that keeps values apart, whatever is done to both.
#include "attention/cached_rows.hpp"

namespace attn::test {
namespace {

struct Both {
  KVCache one, apart;
};

// The same tokens, in pieces; some are cut off, and forgotten, on the way.
Both filled(std::mt19937& rng, const KVCacheConfig& config, std::int64_t tokens) {
  KVCacheConfig beside = config;
  beside.values_in_keys = false;
  Both both{KVCache(config), KVCache(beside)};
  while (both.one.max_length() < tokens) {
    const Tensor k = uniform(rng, {config.batch, config.kv_heads, pick(rng, 1, 90), config.head_dim});
    const Tensor v = k.slice(3, 0, config.value_dim);
    if (chance(rng, 0.5)) {
      both.one.append(k, {}), both.apart.append(k, v);
    } else {
      const std::int64_t item = pick(rng, 0, config.batch - 1);
      both.one.append(item, k.select(0, item), {}), both.apart.append(item, k.select(0, item), v.select(0, item));
    }
    const std::int64_t item = pick(rng, 0, config.batch - 1), some = pick(rng, 0, both.one.length(item));
    if (chance(rng, 0.2)) both.one.truncate(item, some), both.apart.truncate(item, some);
    const std::int64_t old = chance(rng, 0.2) ? pick(rng, 0, both.one.length(item)) : 0;
    EXPECT_EQ(both.one.forget(item, old), both.apart.forget(item, old));
    if (chance(rng, 0.2)) both.one = both.one.clone();
  }
  return both;
}

TEST(ValuesInKeys, AreWhatACacheOfBothHas) {
  for (const DType dtype : kStored) {
    for_seeds(12, [dtype](std::mt19937& rng) {
      KVCacheConfig config = random_config(rng);
      config.dtype = dtype, config.values_in_keys = true, config.value_dim = pick(rng, 1, config.head_dim);
      const auto [one, apart] = filled(rng, config, 200);
      for (std::int64_t b = 0; b < config.batch; ++b) {
        EXPECT_TRUE(identical(one.keys(b), apart.keys(b)));
        EXPECT_TRUE(identical(one.values(b), one.keys(b).slice(2, 0, config.value_dim).clone()));
      }
      const std::int64_t heads = config.kv_heads * pick(rng, 1, 9);
      for (const DType queries : kQueries) {
        for (const std::int64_t tq : {1, 40}) {
          const Tensor q = uniform(rng, {config.batch, heads, tq, config.head_dim}, queries);
          const Tensor found = attention(q, one).output, expected = attention(q, apart).output;
          if (dtype == DType::i8) {  // a row's values have the keys' scale here, and one of their own there
            expect_close(found, expected, 0.02, "int8");
          } else {
            EXPECT_TRUE(identical(found, expected));
          }
        }
      }
    });
  }
}

TEST(ValuesInKeys, TakeTheMemoryOfTheKeys) {
  for (const std::int64_t page_size : {0, 64}) {
    KVCache cache({.head_dim = 576,
                   .value_dim = 512,
                   .dtype = DType::bf16,
                   .page_size = page_size,
                   .capacity = 64,
                   .values_in_keys = true});
    cache.append(Tensor::ones({1, 1, 64, 576}), {});
    const std::size_t pages = page_size == 0 ? 1 : (4 << 20) / (64 * 576 * 2);  // a pool grows by about 4 MB
    EXPECT_LE(cache.bytes(), std::size_t{64} * 576 * 2 * pages);
  }
}

TEST(ValuesInKeys, MistakesAreNamed) {
  using Kind = Error::Kind;
  expect_error(Kind::argument, {"value_dim, of values in keys, from 1 to 4", "5"},
               [] { KVCache({.head_dim = 4, .value_dim = 5, .values_in_keys = true}); });
  KVCache cache({.head_dim = 4, .value_dim = 2, .values_in_keys = true});
  const Tensor k = Tensor::ones({1, 1, 3, 4});
  expect_error(Kind::argument, {"no v beside k"}, [&] { cache.append(k, k); });
  expect_error(Kind::argument, {"undefined"}, [&] { cache.append({}, {}); });
  expect_error(Kind::shape, {"(1, 1, 3, 4)", "(1, 1, 3, 2)"}, [&] { cache.append(k.slice(3, 0, 2), {}); });
  EXPECT_EQ(cache.length(0), 0);
}

}  // namespace
}  // namespace attn::test
