// Attention to the key-value cache against the composed steps on the same rows, and that neither pages, threads nor
// other batch items change a bit. The whole program runs once for every instruction set.
#include <omp.h>

#include "attention/cached_rows.hpp"
#include "core/largest.hpp"

namespace attn::test {
namespace {

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

// Returns the tolerance, as a share of the largest value: for float32's sums, for the output's rounding and, where q
// and cache share a 16-bit dtype, for that of the weights.
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
    const KVCache all = filled(call, call.config);
    for (std::int64_t b = 0; b < call.config.batch; ++b) {
      Call one = call;
      one.config.batch = 1;
      const std::int64_t n = call.lengths[static_cast<std::size_t>(b)];
      one.lengths = {n};
      one.rows = {call.rows.k.slice(0, b, b + 1), call.rows.v.slice(0, b, b + 1)};
      const Tensor alone = attention(call.q.slice(0, b, b + 1), filled(one, one.config), call.options).output;
      EXPECT_TRUE(identical(alone, whole.slice(0, b, b + 1).clone())) << "item " << b;
      const Tensor of_all = attention(call.q.slice(0, b, b + 1), all, b, call.options).output;
      EXPECT_TRUE(identical(alone, of_all)) << "item " << b << " of the batch";
    }
  });
}

// A decoder takes a few tokens a step, and each output is the row of the whole sequence's causal attention.
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

// Where keys are zero a query's number is multiplied by nothing, however large it is: on AMX queries are integers of a
// row's own unit. A query beside it keeps its bits.
TEST(KVCacheAttention, ALargeNumberThatMeetsZerosChangesNothing) {
  std::mt19937 rng(31);
  KVCache cache({.kv_heads = 1, .head_dim = 8, .dtype = DType::i8});
  const Tensor k = uniform(rng, {1, 1, 300, 8}, DType::f32), v = uniform(rng, {1, 1, 300, 8}, DType::f32);
  k.slice(3, 0, 1).fill(0);
  cache.append(k, v);
  const Tensor plain = uniform(rng, {1, 4, 1, 8}, DType::f32);
  const AttentionResult expected = attention(plain, cache);
  for (const double large : {1e3, 6e4, 1e6, 1e8}) {
    Tensor q = plain.clone();
    q.set({0, 2, 0, 0}, large);
    const Tensor found = attention(q, cache).output;
    EXPECT_LT(difference(found.select(1, 2), expected.output.select(1, 2)), 2e-6) << large;
    EXPECT_TRUE(identical(found.select(1, 3).contiguous(), expected.output.select(1, 3).contiguous())) << large;
  }
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
