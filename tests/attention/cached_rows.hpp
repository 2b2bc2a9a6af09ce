// Random caches and the rows that they hold.
#pragma once

#include <algorithm>

#include "attn/kv_cache.hpp"
#include "core/testing.hpp"

namespace attn::test {

inline constexpr DType kStored[] = {DType::f32, DType::bf16, DType::f16, DType::i8};
inline constexpr DType kQueries[] = {DType::f32, DType::bf16, DType::f16};

inline KVCacheConfig random_config(std::mt19937& rng) {
  KVCacheConfig c;
  c.batch = pick(rng, 1, 3), c.kv_heads = pick(rng, 1, 3);
  c.head_dim = pick(rng, 1, 70), c.value_dim = chance(rng, 0.5) ? 0 : pick(rng, 1, 70);
  c.dtype = kStored[pick(rng, 0, 3)];
  c.page_size = chance(rng, 0.3) ? 0 : pick(rng, 1, 40);
  c.capacity = chance(rng, 0.5) ? 0 : pick(rng, 1, 200);
  return c;
}

inline std::int64_t value_dim(const KVCacheConfig& c) { return c.value_dim == 0 ? c.head_dim : c.value_dim; }

// Rows in the stored dtype, or float32 for int8: what the cache must give back, but for int8's rounding.
inline DType kept_dtype(const KVCacheConfig& c) { return c.dtype == DType::i8 ? DType::f32 : c.dtype; }

struct Rows {
  Tensor k, v;  // (b, hkv, t, d), (b, hkv, t, dv)
};

inline Rows random_rows(std::mt19937& rng, const KVCacheConfig& c, std::int64_t tokens) {
  return {uniform(rng, {c.batch, c.kv_heads, tokens, c.head_dim}, kept_dtype(c)),
          uniform(rng, {c.batch, c.kv_heads, tokens, value_dim(c)}, kept_dtype(c))};
}

// Each item gets its first lengths[b] rows, in pieces, now and then some of them twice.
inline void fill(std::mt19937& rng, KVCache& cache, const Rows& rows, const std::vector<std::int64_t>& lengths) {
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

inline std::vector<std::int64_t> random_lengths(std::mt19937& rng, const KVCacheConfig& c, std::int64_t most) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < c.batch; ++b) lengths.push_back(chance(rng, 0.1) ? 0 : pick(rng, 1, most));
  return lengths;
}

}  // namespace attn::test
