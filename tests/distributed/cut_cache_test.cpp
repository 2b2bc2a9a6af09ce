// A cache that is cut among ranks, against the definition on what a whole cache holds.
#include "attn/cut_cache.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/memory_limit.hpp"
#include "distributed/errors.hpp"
#include "distributed/on_ranks.hpp"

namespace attn::test {
namespace {

namespace dist = attn::distributed;

using dist::CutCache;
using dist::Transport;

struct Layer {
  KVCacheConfig config;
  std::int64_t heads = 1;
  AttentionOptions options;
  DType dtype = DType::f32;  // of queries
};

Layer random_layer(std::mt19937& rng) {
  constexpr DType stored[] = {DType::f32, DType::bf16, DType::f16, DType::i8};
  Layer layer;
  KVCacheConfig& c = layer.config;
  c = {.batch = pick(rng, 1, 3), .kv_heads = pick(rng, 1, 2), .head_dim = pick(rng, 1, 40)};
  c.value_dim = chance(rng, 0.5) ? 0 : pick(rng, 1, 40);
  c.dtype = stored[pick(rng, 0, 3)], c.capacity = chance(rng, 0.5) ? 0 : pick(rng, 1, 100);
  layer.heads = c.kv_heads * pick(rng, 1, 3);
  if (c.dtype != DType::i8 && chance(rng, 0.5)) layer.dtype = c.dtype;
  AttentionOptions& o = layer.options;
  if (chance(rng, 0.8)) o.mask = Mask::causal(Align::bottom_right);
  if (o.mask.is_causal && chance(rng, 0.5))
    o.mask.window_left = chance(rng, 0.1) ? std::numeric_limits<std::int64_t>::max() : pick(rng, 0, 20);
  if (chance(rng, 0.3)) o.softcap = 2;
  if (chance(rng, 0.3)) o.scale = 0.7;
  if (chance(rng, 0.3)) o.sinks = uniform(rng, {layer.heads}, DType::f32, -2, 2);
  return layer;
}

void expect_same_bits(Transport& t, const Tensor& found) {
  const Tensor all = found.contiguous();
  const std::vector<std::string> bytes = t.all_gather(
      std::string(static_cast<const char*>(all.raw()), static_cast<std::size_t>(all.numel()) * size_of(all.dtype())));
  EXPECT_TRUE(bytes[static_cast<std::size_t>(t.rank())] == bytes[0]) << "rank " << t.rank();
}

// Compares an item's result with the definition in float64, on the rows that a whole cache holds.
void expect_truth(const AttentionResult& found, const Tensor& q, const KVCache& whole, std::int64_t item,
                  const AttentionOptions& options) {
  const auto rows = [&](const Tensor& t) { return t.to(q.dtype()).unsqueeze(0); };
  oracle::Problem p = oracle::problem_of(q, rows(whole.keys(item)), rows(whole.values(item)), options);
  p.fixed_point = whole.config().dtype == DType::i8;
  SCOPED_TRACE("item " + std::to_string(item));
  EXPECT_EQ(found.output.dtype(), q.dtype());
  test::expect_truth(p, found);
}

AttentionResult of_item(const AttentionResult& all, std::int64_t b) {
  return {all.output.slice(0, b, b + 1).clone(), all.lse.slice(0, b, b + 1).clone(), {}};
}

// A decoder's calls: tokens come, of all items or of one, are attended to, and now and then the last are taken back or
// the first, which no window shows, forgotten.
class Decoding {
 public:
  Decoding(Transport& transport, const Layer& layer)
      : transport_(transport), layer_(layer), cut_(transport, layer.config), whole_(layer.config) {}

  void step(std::mt19937& rng) {
    const std::int64_t batch = layer_.config.batch, tokens = chance(rng, 0.5) ? 1 : pick(rng, 1, 40);
    if (chance(rng, 0.5)) {
      const std::int64_t item = pick(rng, 0, batch - 1);
      const auto [k, v] = rows(rng, 1, tokens);
      cut_.append(item, k.select(0, 0), v.select(0, 0)), whole_.append(item, k.select(0, 0), v.select(0, 0));
      const Tensor q = queries(rng, 1, pick(rng, 1, tokens));
      check(attention(q, cut_, item, layer_.options), q, item);
    } else {
      const auto [k, v] = rows(rng, batch, tokens);
      cut_.append(k, v), whole_.append(k, v);
      const Tensor q = queries(rng, batch, pick(rng, 1, tokens));
      check(attention(q, cut_, layer_.options), q, 0);
    }
    for (std::int64_t b = 0; b < batch; ++b) take_away(rng, b);
  }

 private:
  // Items from `first` on.
  void check(const AttentionResult& found, const Tensor& q, std::int64_t first) {
    expect_same_bits(transport_, found.output), expect_same_bits(transport_, found.lse);
    if (transport_.rank() != 0) return;
    for (std::int64_t b = 0; b < q.size(0); ++b)
      expect_truth(of_item(found, b), q.slice(0, b, b + 1).clone(), whole_, first + b, layer_.options);
  }
  std::pair<Tensor, Tensor> rows(std::mt19937& rng, std::int64_t batch, std::int64_t tokens) {
    const KVCacheConfig& c = whole_.config();
    const Tensor k = uniform(rng, {batch, c.kv_heads, tokens, c.head_dim}, DType::f32);
    const Tensor v = uniform(rng, {batch, c.kv_heads, tokens, c.value_dim}, DType::f32);
    return {scattered(rng, k), scattered(rng, v)};
  }
  Tensor queries(std::mt19937& rng, std::int64_t batch, std::int64_t tokens) {
    return uniform(rng, {batch, layer_.heads, tokens, layer_.config.head_dim}, layer_.dtype, -2, 2);
  }
  // The whole cache keeps what the other forgets: `forgotten_` tokens more.
  void take_away(std::mt19937& rng, std::int64_t item) {
    auto& gone = forgotten_[static_cast<std::size_t>(item)];
    const std::int64_t window = layer_.options.mask.window_left;
    if (chance(rng, 0.1)) {  // but not so far that the window would show what was forgotten
      const std::int64_t length = pick(rng, gone > 0 ? window : 0, cut_.length(item));
      cut_.truncate(item, length), whole_.truncate(item, gone + length);
    }
    if (window >= 0 && cut_.length(item) > window) gone += cut_.forget(item, cut_.length(item) - window);
    EXPECT_EQ(cut_.length(item) + gone, whole_.length(item));
  }

  Transport& transport_;
  Layer layer_;
  CutCache cut_;
  KVCache whole_;
  std::array<std::int64_t, 3> forgotten_{};
};

TEST(CutCache, AttendsToTheWhole) {
  on_ranks(15, [](std::mt19937& rng, Transport& t) {
    const Layer layer = random_layer(rng);
    SCOPED_TRACE(testing::Message() << t.size() << " ranks, cache of " << name(layer.config.dtype) << ", window "
                                    << layer.options.mask.window_left << ", q of " << name(layer.dtype));
    Decoding decoding(t, layer);
    for (int i = 0; i < 8; ++i) decoding.step(rng);
  });
}

TEST(CutCache, HasAnEvenShareOfTheMemory) {
  const KVCacheConfig config{.kv_heads = 2, .head_dim = 32, .capacity = 1000};
  const KVCache whole(config);
  dist::run_threads(4, [&](Transport& t) {
    CutCache cut(t, config);
    const std::size_t before = cut.bytes();
    std::mt19937 rng(1);
    const Tensor rows = uniform(rng, {1, 2, 1000, 32}, DType::f32);
    cut.append(rows.slice(2, 0, 997), rows.slice(2, 0, 997));
    cut.append(rows.slice(2, 997, 1000), rows.slice(2, 997, 1000));
    EXPECT_EQ(cut.bytes(), before);
    EXPECT_LE(4 * before, whole.bytes() + 4 * 64);
  });
}

// A window's tokens are all that is kept, but for a quarter.
TEST(CutCache, ForgetsAlikeOnAllRanks) {
  for (const int ranks : {1, 3, 4}) {
    dist::run_threads(ranks, [&](Transport& t) {
      const Tensor row = Tensor::ones({1, 1, 1, 4});
      for (std::int64_t window = 5; window < 45; ++window) {
        CutCache cut(t, {.kv_heads = 1, .head_dim = 4});
        for (int i = 0; i < 150; ++i) {
          cut.append(row, row);
          if (cut.length(0) > window) cut.forget(0, cut.length(0) - window);
          const auto lengths = t.all_gather(std::to_string(cut.length(0)));
          ASSERT_EQ(std::count(lengths.begin(), lengths.end(), lengths[0]), ranks) << window << ", " << i;
          ASSERT_LE(cut.length(0), window + window / 4 + 2 * ranks) << window << ", " << i;
        }
      }
    });
  }
}

// The second item's rows find no memory after the first item has its own: then neither has them.
TEST(CutCache, IsAsBeforeWhereMemoryEnds) {
  if (!limits_memory()) return;
  dist::run_threads(1, [](Transport& t) {
    constexpr std::int64_t full = 1 << 17;
    CutCache cut(t, {.batch = 2, .kv_heads = 1, .head_dim = 64, .capacity = full});
    std::mt19937 rng(4);
    const Tensor some = uniform(rng, {1, 5, 64}, DType::f32), many = Tensor::zeros({1, 1, 64}).expand({1, full, 64});
    const Tensor one = uniform(rng, {2, 1, 1, 64}, DType::f32), q = uniform(rng, {1, 1, 1, 64}, DType::f32);
    cut.append(0, some, some), cut.append(1, many, many);
    const auto seen = [&] { return attention(q, cut, 0, {.mask = Mask::causal(Align::bottom_right)}).output; };
    const Tensor before = seen().clone();
    {
      const MemoryLimit limit(64);  // twice the room is 256 MB
      EXPECT_THROW(cut.append(one, one), std::bad_alloc);
    }
    EXPECT_EQ(cut.length(0), 5);
    EXPECT_EQ(cut.length(1), full);
    EXPECT_TRUE(identical(seen(), before));
    cut.append(0, one.select(0, 0), one.select(0, 0));
    EXPECT_EQ(cut.length(0), 6);
  });
}

TEST(CutCache, DifferencesAreToldOnAllRanks) {
  dist::run_threads(3, [](Transport& t) {
    expect_error(Error::Kind::argument, {"head_dim 4", "head_dim 8", "rank 1"},
                 [&] { CutCache(t, {.head_dim = t.rank() == 1 ? 8 : 4}); });
    expect_error(Error::Kind::argument, {"without pages"}, [&] { CutCache(t, {.page_size = 16}); });
    CutCache cut(t, {.batch = 2, .kv_heads = 2, .head_dim = 4});
    const auto ones = [](std::initializer_list<std::int64_t> shape) { return Tensor::ones(Shape(shape)); };
    cut.append(ones({2, 2, 5, 4}), ones({2, 2, 5, 4}));
    const auto append = [&](const Tensor& k, const Tensor& v) {
      expect_error(Error::Kind::shape, {"found"}, [&] { cut.append(k, v); });
    };
    append(ones({2, 2, 1, 4}), ones({2, 2, 2, 4})), append(ones({1, 2, 1, 4}), ones({1, 2, 1, 4}));
    append(ones({2, 2, 1, 5}), ones({2, 2, 1, 4})), append(ones({2, 1, 1, 4}), ones({2, 1, 1, 4}));
    expect_error(Error::Kind::shape, {"found"}, [&] { cut.append(1, ones({2, 1, 4}), ones({2, 1, 5})); });
    expect_error(Error::Kind::argument, {"item"}, [&] { cut.append(2, ones({2, 1, 4}), ones({2, 1, 4})); });
    expect_error(Error::Kind::argument, {"0 to 5"}, [&] { cut.truncate(1, 6); });
    expect_error(Error::Kind::argument, {"0 to 5"}, [&] { cut.forget(0, 6); });
    for (const Tensor& q : {ones({2, 3, 1, 4}), ones({2, 2, 6, 4}), ones({1, 2, 1, 4}), ones({2, 2, 1, 5})})
      expect_error(Error::Kind::shape, {"latest tokens"}, [&] { attention(q, cut); });
    const auto refused = [&](const AttentionOptions& options, const char* found = "found",
                             Error::Kind kind = Error::Kind::argument) {
      expect_error(kind, {found}, [&] { attention(ones({2, 2, 1, 4}), cut, options); });
    };
    refused({.mask = Mask::causal()}, "aligned top_left"), refused({.mask = Mask::window(3, -1, Align::bottom_right)});
    // One rank has the only token of this window, and the others have none.
    const Mask narrow = Mask::causal(Align::bottom_right) & Mask::window(0, -1, Align::bottom_right);
    refused({.mask = narrow, .scale = std::nan("")}, "scale"), refused({.mask = narrow, .softcap = -1}, "softcap");
    refused({.sinks = ones({1})}, "sinks", Error::Kind::shape);
    refused({.output_dtype = DType::bf16}, "output", Error::Kind::dtype);
    refused({.mask = Mask::boolean(Tensor::ones({5}, DType::boolean))}), refused({.alibi_slopes = ones({2})});
    refused({.query_offset = 3}), refused({.return_weights = true});
    EXPECT_EQ(cut.lengths().at({1}), 5);
  });
}

// Compares norms of errors over some problems, of one new token and of a piece of a prompt. A token's parts are rounded
// to float32 once more than one process rounds, which may cost 2 %.
TEST(CutCache, SlowIsAsNearToTheTruthAsOneProcess) {
  const KVCacheConfig config{.kv_heads = 4, .head_dim = 64};
  const AttentionOptions options{.mask = Mask::causal(Align::bottom_right)};
  for (const std::int64_t tokens : {1, 64}) {
    std::map<int, Errors> outputs, lses;  // by numbers of ranks
    for (unsigned seed = 1; seed <= 4; ++seed) {
      std::mt19937 rng(seed);
      const Tensor k = uniform(rng, {1, 4, 1024, 64}, DType::f32, -2, 2);
      const Tensor v = uniform(rng, {1, 4, 1024, 64}, DType::f32);
      const Tensor q = uniform(rng, {1, 16, tokens, 64}, DType::f32, -2, 2);
      const oracle::Result want = oracle::attention(oracle::problem_of(q, k, v, options));
      KVCache whole(config);
      whole.append(k, v);
      const AttentionResult one = attention(q, whole, options);
      for (const int ranks : {2, 4, 8}) {
        dist::run_threads(ranks, [&](Transport& t) {
          const Threads own(1);
          CutCache cut(t, config);
          cut.append(k, v);
          const AttentionResult found = attention(q, cut, options);
          if (t.rank() != 0) return;
          outputs[ranks].add(one.output, found.output, want.output), lses[ranks].add(one.lse, found.lse, want.lse);
        });
      }
    }
    const double most = tokens == 1 ? 1.02 * 1.02 : 1;  // of squares
    for (const auto& [ranks, output] : outputs) EXPECT_LE(output.ranks, most * output.one) << tokens << " on " << ranks;
    for (const auto& [ranks, lse] : lses) EXPECT_LE(lse.ranks, lse.one) << tokens << " on " << ranks;
  }
}

}  // namespace
}  // namespace attn::test
