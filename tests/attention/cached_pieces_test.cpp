// More queries than decode takes read a cache as it is: pieces of a prompt. Every bit is that of attention() to a copy
// of the keys and values, in the queries' dtype where the cache has it and else in float32, for every unit.
#include <sys/resource.h>

#include "attention/cached_rows.hpp"
#include "attention/fused.hpp"
#include "attention/tiles.hpp"

namespace attn::test {
namespace {

struct Piece {
  Sizes sizes;
  KVCacheConfig config;
  Tensor q;
  AttentionOptions options;
};

// Pages that hold whole blocks of keys, and such that do not.
std::int64_t random_page_size(std::mt19937& rng) {
  const std::int64_t sizes[] = {0, 16, 64, 128, 256, pick(rng, 1, 40), pick(rng, 100, 600)};
  return sizes[pick(rng, 0, 6)];
}

Piece random_piece(std::mt19937& rng, DType queries, DType stored) {
  Piece piece;
  Sizes& s = piece.sizes = tile_sizes(rng);
  s.b = pick(rng, 1, 3), s.tq = chance(rng, 0.3) ? pick(rng, 128, 180) : pick(rng, chance(rng, 0.2) ? 1 : 5, 127);
  if (chance(rng, 0.4)) s.d = 32 * pick(rng, 1, 2);  // whole tiles of AMX
  piece.config = {.batch = s.b, .kv_heads = s.hkv, .head_dim = s.d, .value_dim = s.dv, .dtype = stored};
  piece.config.page_size = random_page_size(rng);
  piece.q = by_token(rng, uniform(rng, {s.b, s.hq, s.tq, s.d}, queries, -2, 2));
  Inputs in;
  in.sizes = s, in.options = random_options(rng, s, DType::f32);
  if (in.options.dropout == 1) in.options.dropout = 0, in.options.dropout_keep = {};
  add_options(rng, in);
  if (chance(rng, 0.2)) add_offsets(rng, in);
  in.options.mask.key_lengths = in.options.mask.query_starts = in.options.mask.key_starts = {};
  in.options.precision =
      std::array{Precision::highest, Precision::high, Precision::medium}[static_cast<std::size_t>(pick(rng, 0, 2))];
  if (chance(rng, 0.2)) in.options.output_dtype = DType::f32;
  piece.options = in.options;
  return piece;
}

// Items of several lengths, one of them of all tokens.
KVCache filled(std::mt19937& rng, const Piece& piece, const Rows& rows) {
  std::vector<std::int64_t> lengths = random_lengths(rng, piece.config, piece.sizes.tk);
  lengths[static_cast<std::size_t>(pick(rng, 0, piece.sizes.b - 1))] = piece.sizes.tk;
  KVCache cache(piece.config);
  fill(rng, cache, rows, lengths);
  return cache;
}

// Some items of a cache as tensors, zeros behind the shorter ones.
struct Copy {
  Tensor q, k, v;
  AttentionOptions options;
};

Copy copy_of(const Piece& piece, const KVCache& cache, std::int64_t first, std::int64_t last) {
  const DType dtype = piece.q.dtype() == piece.config.dtype ? piece.q.dtype() : DType::f32;
  Copy copy{piece.q.slice(0, first, last).to(dtype), {}, {}, piece.options};
  const Tensor lengths = cache.lengths().slice(0, first, last);
  std::int64_t longest = 0;
  for (std::int64_t b = first; b < last; ++b) longest = std::max(longest, cache.length(b));
  copy.k = Tensor::zeros({last - first, piece.sizes.hkv, longest, piece.sizes.d}, dtype);
  copy.v = Tensor::zeros({last - first, piece.sizes.hkv, longest, piece.sizes.dv}, dtype);
  for (std::int64_t b = first; b < last; ++b) {
    copy.k.select(0, b - first).slice(1, 0, cache.length(b)).copy_from(cache.keys(b));
    copy.v.select(0, b - first).slice(1, 0, cache.length(b)).copy_from(cache.values(b));
  }
  copy.options.mask.key_lengths = lengths;
  return copy;
}

void expect_same(const AttentionResult& found, const AttentionResult& expected) {
  EXPECT_TRUE(identical(found.output, expected.output.to(found.output.dtype())));
  EXPECT_TRUE(identical(found.lse, expected.lse));
  ASSERT_EQ(found.weights.defined(), expected.weights.defined());
  if (!found.weights.defined()) return;
  EXPECT_TRUE(identical(found.weights, expected.weights));
}

template <class Body>
void for_pieces(unsigned count, Body&& body) {
  for (const DType queries : kQueries) {
    for (const DType stored : kStored) {
      for_seeds(count, [&](std::mt19937& rng) {
        const Piece piece = random_piece(rng, queries, stored);
        Inputs in{.sizes = piece.sizes, .q = piece.q, .options = piece.options};
        in.k = Tensor::empty({piece.sizes.b, piece.sizes.hkv, piece.sizes.tk, piece.sizes.d});
        SCOPED_TRACE(std::string(name(queries)) + " to " + std::string(name(stored)) + ", pages of " +
                     std::to_string(piece.config.page_size) + ", " + describe(in));
        body(rng, piece);
      });
    }
  }
}

TEST(CachedPieces, HaveTheBitsOfACopy) {
  for_pieces(10, [](std::mt19937& rng, const Piece& piece) {
    const KVCache cache = filled(rng, piece, random_rows(rng, piece.config, piece.sizes.tk));
    const Copy copy = copy_of(piece, cache, 0, piece.sizes.b);
    const AttentionResult found = attention(piece.q, cache, piece.options);
    EXPECT_EQ(found.output.dtype(), piece.options.output_dtype.value_or(piece.q.dtype()));
    expect_same(found, attention(copy.q, copy.k, copy.v, copy.options));
    const AttentionResult merged = attention_to_merge(piece.q, cache, {}, piece.options);
    expect_same(merged, attention_to_merge(copy.q, copy.k, copy.v, copy.options));
  });
}

// One item of several, as a prompt is read.
TEST(CachedPieces, OfOneItemHaveTheBitsOfACopy) {
  for_pieces(4, [](std::mt19937& rng, Piece piece) {
    AttentionOptions& o = piece.options;
    o.mask.keep = o.mask.bias = o.mask.block_keep = o.dropout_keep = {}, o.dropout = 0;  // as large as the batch
    o.mask.block_query = o.mask.block_key = 0;
    o.query_offset = o.key_offset = {};
    const KVCache cache = filled(rng, piece, random_rows(rng, piece.config, piece.sizes.tk));
    const std::int64_t b = pick(rng, 0, piece.sizes.b - 1);
    const Copy copy = copy_of(piece, cache, b, b + 1);
    expect_same(attention(piece.q.slice(0, b, b + 1), cache, b, o), attention(copy.q, copy.k, copy.v, copy.options));
  });
}

// Blocks of 128 and 256 keys that lie in one page, and such that pages cut.
TEST(CachedPieces, OfManyPagesHaveTheBitsOfACopy) {
  for (const std::int64_t page_size : {96, 128, 256, 320}) {
    for (const DType queries : kQueries) {
      for (const DType stored : kStored) {
        for_seeds(1, [&](std::mt19937& rng) {
          SCOPED_TRACE(std::string(name(queries)) + " to " + std::string(name(stored)) + ", pages of " +
                       std::to_string(page_size));
          for (const std::int64_t tk : {700, 768}) {
            Piece piece{{.b = 1, .hq = 2, .hkv = 1, .tq = 20, .tk = tk, .d = 64, .dv = 64}, {}, {}, {}};
            piece.config = {.kv_heads = 1, .head_dim = 64, .dtype = stored, .page_size = page_size};
            piece.q = uniform(rng, {1, 2, 20, 64}, queries, -2, 2);
            const KVCache cache = filled(rng, piece, random_rows(rng, piece.config, tk));
            const Copy copy = copy_of(piece, cache, 0, 1);
            expect_same(attention(piece.q, cache), attention(copy.q, copy.k, copy.v, copy.options));
          }
        });
      }
    }
  }
}

// NaN, infinities and numbers whose products overflow, in rows that some queries see: they are computed again, from
// the heads' copies.
TEST(CachedPieces, WithSpecialNumbersAreThoseOfACopy) {
  for_pieces(4, [](std::mt19937& rng, const Piece& piece) {
    const Rows rows = random_rows(rng, piece.config, piece.sizes.tk);
    for (Tensor t : {rows.k, rows.v}) {
      const double special[] = {kNan, kInf, -kInf, piece.config.dtype == DType::f16 ? 6e4 : 3e38};
      for (int i = 0; i < 3; ++i) {
        t.set({pick(rng, 0, t.size(0) - 1), pick(rng, 0, t.size(1) - 1), pick(rng, 0, t.size(2) - 1),
               pick(rng, 0, t.size(3) - 1)},
              special[pick(rng, 0, 3)]);
      }
    }
    const KVCache cache = filled(rng, piece, rows);
    const Copy copy = copy_of(piece, cache, 0, piece.sizes.b);
    const AttentionResult found = attention(piece.q, cache, piece.options);
    const AttentionResult expected = attention(copy.q, copy.k, copy.v, copy.options);
    expect_close(found.output, expected.output.to(found.output.dtype()), 0, "output");
    expect_close(found.lse, expected.lse, 0, "lse");
  });
}

// Fewer queries than float32 in bf16 parts begin with: the parts of all keys would be packed at once.
TEST(CachedPieces, CopyNoCache) {
  constexpr std::int64_t tokens = 65536, d = 64;
  for (const DType stored : {DType::bf16, DType::i8}) {
    KVCache cache({.kv_heads = 1, .head_dim = d, .dtype = stored, .page_size = 256, .capacity = tokens});
    for (std::int64_t t = 0; t < tokens; t += 1024)
      cache.append(Tensor::ones({1, 1, 1024, d}), Tensor::ones({1, 1, 1024, d}));
    const auto peak = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss / 1024;
    };
    const auto before = peak();
    EXPECT_THAT(values(attention(Tensor::ones({1, 1, 100, d}), cache).output),
                testing::Each(testing::DoubleNear(1, 1e-5)));
    EXPECT_LT(peak() - before, 12) << "MB, where float32 keys and values have 32";
  }
}

}  // namespace
}  // namespace attn::test
