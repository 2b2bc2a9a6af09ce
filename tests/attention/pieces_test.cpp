// Pieces of a long sequence, told where they stand, are computed as parts of it: results over disjoint keys merge to
// the whole's, and gradients add up. The oracle knows the whole.

#include "attention/tiles.hpp"
#include "attn/kv_cache.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

// Sequences of s.tk tokens, of which each item asks s.tq queries, from position start[b] on.
struct Whole {
  Sizes s;
  std::vector<std::int64_t> start;
  Tensor q, k, v, g;
  AttentionOptions options;  // query_offset is `start`
};

Whole random_whole(std::mt19937& rng, DType dtype, std::int64_t longest) {
  Whole w;
  Sizes& s = w.s;
  s.b = pick(rng, 1, 3), s.hkv = pick(rng, 1, 2), s.hq = s.hkv * pick(rng, 1, 2);
  s.tk = pick(rng, 1, longest), s.d = pick(rng, 1, 40), s.dv = pick(rng, 1, 40);
  s.tq = chance(rng, 0.3) ? pick(rng, 1, std::min<std::int64_t>(4, s.tk)) : pick(rng, 1, s.tk);
  for (std::int64_t b = 0; b < s.b; ++b) w.start.push_back(pick(rng, 0, s.tk - s.tq));
  w.q = uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype), w.k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype);
  w.v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype), w.g = uniform(rng, {s.b, s.hq, s.tq, s.dv}, dtype);
  AttentionOptions& o = w.options;
  o.query_offset = integers(w.start);
  o.mask.is_causal = chance(rng, 0.6);
  if (chance(rng, 0.3)) o.mask.window_left = pick(rng, 0, s.tk);
  if (chance(rng, 0.3)) o.mask.window_right = pick(rng, 0, s.tk);
  if (chance(rng, 0.4)) o.alibi_slopes = uniform(rng, {s.hq}, DType::f32, 0, 0.3);
  if (chance(rng, 0.3))
    o.relative_bias = random_relative_bias(rng, s.hq, dtype == DType::f64 ? DType::f64 : DType::f32);
  if (chance(rng, 0.4)) o.dropout = 0.25, o.dropout_key = rng() * std::uint64_t{0x100000001};
  if (chance(rng, 0.3)) o.softcap = 2;
  if (chance(rng, 0.3)) o.score_function = wavy_scores();
  if (chance(rng, 0.4)) o.sinks = uniform(rng, {s.hq}, dtype == DType::f64 ? DType::f64 : DType::f32, -1, 1);
  return w;
}

std::string describe(const Whole& w) { return describe(Inputs{w.s, w.q, w.k, w.v, w.options}); }

// Tokens [from, to) of every item.
struct Range {
  std::vector<std::int64_t> from, to;

  std::int64_t length(std::int64_t b) const {
    return to[static_cast<std::size_t>(b)] - from[static_cast<std::size_t>(b)];
  }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::size_t b = 0; b < from.size(); ++b) most = std::max(most, to[b] - from[b]);
    return most;
  }
};

// Cuts `items` runs of `total` tokens into 1 to 4 pieces, at places of each item's own or at the same ones.
std::vector<Range> cut(std::mt19937& rng, std::int64_t items, std::int64_t total, bool alike) {
  std::vector<Range> all;
  std::vector<std::int64_t> from(static_cast<std::size_t>(items), 0);
  for (std::int64_t left = pick(rng, 0, 3); left >= 0; --left) {
    std::vector<std::int64_t> to;
    for (const std::int64_t begin : from) to.push_back(left == 0 ? total : pick(rng, begin, total));
    if (alike) std::fill(to.begin(), to.end(), to[0]);
    all.push_back({from, to});
    from = to;
  }
  return all;
}

// A piece's rows of t (b, h, tokens, width); behind an item's last, what the kernels must not read.
Tensor rows_of(const Tensor& t, const Range& range) {
  const Tensor part =
      Tensor::full({t.size(0), t.size(1), range.longest(), t.size(3)}, t.dtype() == DType::f64 ? 1e4 : kNan, t.dtype());
  for (std::int64_t b = 0; b < t.size(0); ++b) {
    const auto item = static_cast<std::size_t>(b);
    const Tensor rows = t.select(0, b).slice(1, range.from[item], range.to[item]);
    part.select(0, b).slice(1, 0, range.length(b)).copy_from(rows);
  }
  return part;
}

// Adds a piece's rows to `sum`, float64, of the whole.
void add_rows(Tensor sum, const Range& range, const Tensor& piece) {
  for (std::int64_t b = 0; b < sum.size(0); ++b) {
    const std::int64_t first = range.from[static_cast<std::size_t>(b)];
    for (std::int64_t h = 0; h < sum.size(1); ++h) {
      for (std::int64_t i = 0; i < range.length(b); ++i) {
        for (std::int64_t c = 0; c < sum.size(3); ++c) {
          sum.set({b, h, first + i, c}, sum.at({b, h, first + i, c}) + piece.at({b, h, i, c}));
        }
      }
    }
  }
}

bool is_alike(const std::vector<std::int64_t>& all) { return all == std::vector(all.size(), all[0]); }

Offset offset(const std::vector<std::int64_t>& all) { return is_alike(all) ? Offset(all[0]) : Offset(integers(all)); }

AttentionOptions options_of(const Whole& w, std::int64_t first_query, const Range& keys, bool is_first) {
  AttentionOptions o = w.options;
  std::vector<std::int64_t> start = w.start, lengths;
  for (std::int64_t& position : start) position += first_query;
  o.query_offset = offset(start), o.key_offset = offset(keys.from);
  for (std::int64_t b = 0; b < w.s.b; ++b) lengths.push_back(keys.length(b));
  if (!is_alike(lengths)) o.mask.key_lengths = integers(lengths);
  if (!is_first) o.sinks = {};  // which belong to one piece alone
  if (size_of(w.q.dtype()) == 2) o.output_dtype = DType::f32;
  return o;
}

// The pieces' results, put together in float64 and in the whole's shapes.
struct Together {
  AttentionResult result;
  AttentionGradient grad;

  explicit Together(const Whole& w) {
    const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f64); };
    result.output = zeros(w.g.shape()), result.lse = zeros({w.s.b, w.s.hq, w.s.tq});
    grad.q = zeros(w.q.shape()), grad.k = zeros(w.k.shape()), grad.v = zeros(w.v.shape());
    if (w.options.sinks.defined()) grad.sinks = zeros({w.s.hq});
  }
};

// Queries [first, last) against each piece of the keys.
void add_queries(const Whole& w, std::int64_t first, std::int64_t last, const std::vector<Range>& keys, Together& all) {
  const auto of_queries = [&](const Tensor& t) { return t.slice(2, first, last); };
  const Tensor q = of_queries(w.q), g = of_queries(w.g);
  std::vector<Tensor> outputs, lses;
  const auto options = [&](std::size_t n) { return options_of(w, first, keys[n], n == 0); };
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const AttentionResult part = attention(q, rows_of(w.k, keys[n]), rows_of(w.v, keys[n]), options(n));
    outputs.push_back(part.output), lses.push_back(part.lse);
  }
  const AttentionResult merged = merge(outputs, lses);
  of_queries(all.result.output).copy_from(merged.output), of_queries(all.result.lse).copy_from(merged.lse);
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const AttentionGradient grad =
        attention_backward(g, q, rows_of(w.k, keys[n]), rows_of(w.v, keys[n]), options(n), merged);
    ASSERT_EQ(grad.k.dtype(), w.q.dtype() == DType::f64 ? DType::f64 : DType::f32);
    const std::vector<std::int64_t> none(static_cast<std::size_t>(w.s.b), 0), count(none.size(), last - first);
    add_rows(of_queries(all.grad.q), {none, count}, grad.q);
    add_rows(all.grad.k, keys[n], grad.k), add_rows(all.grad.v, keys[n], grad.v);
    for (std::int64_t h = 0; grad.sinks.defined() && h < w.s.hq; ++h) {
      all.grad.sinks.set({h}, all.grad.sinks.at({h}) + grad.sinks.at({h}));
    }
  }
}

// Cuts queries and keys, and puts together what the pieces give.
Together computed_in_pieces(std::mt19937& rng, const Whole& w) {
  Together all(w);
  const std::vector<Range> keys = cut(rng, w.s.b, w.s.tk, chance(rng, 0.5));
  for (const Range& queries : cut(rng, 1, w.s.tq, true)) add_queries(w, queries.from[0], queries.to[0], keys, all);
  return all;
}

void check_pieces(std::mt19937& rng, const Whole& w) {
  SCOPED_TRACE(describe(w) + " " + std::string(name(w.q.dtype())));
  const oracle::Problem p = oracle::problem_of(w.q, w.k, w.v, w.options);
  const Together found = computed_in_pieces(rng, w);
  expect_truth(p, found.result), expect_truth(p, w.g, found.grad);
}

class Pieces : public kernels::CallsOnUnits {
 protected:
  void SetUp() override {
    CallsOnUnits::SetUp();
    static_cast<void>(left_to_nightly());  // a skip here ends the test
  }
};

TEST_P(Pieces, TogetherAreTheWhole) {
  for_seeds(32, [](std::mt19937& rng) {
    constexpr DType kDTypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16};
    const DType dtype = kDTypes[pick(rng, 0, 3)];
    check_pieces(rng, random_whole(rng, dtype, chance(rng, 0.2) ? 300 : 60));
  });
}

// A run of queries against all keys, as ranks that share out queries or heads compute it, has the whole's bits where
// both are computed by tiles of one family.
TEST_P(Pieces, OfQueriesHaveTheBitsOfTheWhole) {
  for_seeds(12, [](std::mt19937& rng) {
    constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
    Whole w = random_whole(rng, kDTypes[pick(rng, 0, 2)], 60);
    const bool large = chance(rng, 0.4);  // enough for products of three parts
    Sizes& s = w.s;
    s.tq = s.tk = large ? 300 : 100, s.d = large ? 64 : s.d;
    w.start.assign(w.start.size(), 0), w.options.query_offset = 0;
    const DType dtype = w.q.dtype();
    w.q = uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype), w.k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype);
    w.v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype);
    SCOPED_TRACE(describe(w));
    const std::int64_t first = pick(rng, 0, large ? 170 : 90), last = pick(rng, first + (large ? 128 : 5), s.tq);
    const auto of_queries = [&](const Tensor& t) { return t.slice(2, first, last); };
    const AttentionResult whole = attention(w.q, w.k, w.v, w.options);
    w.options.query_offset = first;
    const AttentionResult piece = attention(of_queries(w.q), w.k, w.v, w.options);
    EXPECT_TRUE(identical(piece.output, of_queries(whole.output).contiguous()));
    EXPECT_TRUE(identical(piece.lse, of_queries(whole.lse).contiguous()));
  });
}

double error_of(const Tensor& found, const oracle::Numbers& expected) {
  const std::vector<double> all = values(found);
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) sum += (all[i] - expected[i].value) * (all[i] - expected[i].value);
  return std::sqrt(sum);
}

// Computes as ranks in a ring do: every piece of the queries against every piece of the keys.
Together in_a_ring(const Whole& w, std::int64_t ranks) {
  std::vector<Range> pieces;
  for (std::int64_t n = 0; n < ranks; ++n) pieces.push_back({{w.s.tk * n / ranks}, {w.s.tk * (n + 1) / ranks}});
  Together all(w);
  for (const Range& own : pieces) add_queries(w, own.from[0], own.to[0], pieces, all);
  return all;
}

struct Known {
  Whole w;
  oracle::Result result;
  oracle::Gradient gradient;
};

Known long_sequence(DType dtype) {
  std::mt19937 rng(7);
  Known known;
  Whole& w = known.w;
  w.s = {1, 1, 1, 1024, 1024, 64, 32}, w.start = {0};
  w.q = uniform(rng, {1, 1, 1024, 64}, dtype, -2, 2), w.k = uniform(rng, {1, 1, 1024, 64}, dtype, -2, 2);
  w.v = uniform(rng, {1, 1, 1024, 32}, dtype), w.g = uniform(rng, {1, 1, 1024, 32}, dtype);
  w.options.mask.is_causal = true, w.options.query_offset = 0;
  const oracle::Problem p = oracle::problem_of(w.q, w.k, w.v, w.options);
  known.result = oracle::attention(p), known.gradient = oracle::gradient(p, oracle::values(w.g));
  return known;
}

// Compares the norms of errors, of results that are rounded alike; chance moves these by less than 2 %.
TEST_P(Pieces, AreAsNearToTheTruthAsTheWhole) {
  static const std::vector<Known> all{long_sequence(DType::f32), long_sequence(DType::bf16)};
  for (const Known& known : all) {
    const Whole& w = known.w;
    const DType dtype = w.q.dtype();
    const AttentionResult whole = attention(w.q, w.k, w.v, w.options);
    const AttentionGradient grad = attention_backward(w.g, w.q, w.k, w.v, w.options);
    for (const std::int64_t ranks : {2, 3, 8}) {
      SCOPED_TRACE(std::string(name(dtype)) + " on " + std::to_string(ranks));
      const Together found = in_a_ring(w, ranks);
      const auto expect = [&](const Tensor& pieces, const Tensor& one, const oracle::Numbers& numbers,
                              const char* what) {
        const double error = error_of(pieces.to(dtype), numbers), most = error_of(one, numbers);
        EXPECT_LE(error, 1.02 * most) << what;
      };
      expect(found.result.output, whole.output, known.result.output, "output");
      expect(found.grad.q, grad.q, known.gradient.q, "dq");
      expect(found.grad.k, grad.k, known.gradient.k, "dk");
      expect(found.grad.v, grad.v, known.gradient.v, "dv");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Pieces, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& instance) { return instance.param; });

TEST(PiecesComposed, TogetherAreTheWhole) {
  for_seeds(40, [](std::mt19937& rng) { check_pieces(rng, random_whole(rng, DType::f64, 40)); });
}

TEST(PiecesOfACache, QueriesStandWhereTheyAreTold) {
  for_seeds(30, [](std::mt19937& rng) {
    Whole w = random_whole(rng, DType::f32, 60);
    const Sizes& s = w.s;
    KVCache cache({.batch = s.b, .kv_heads = s.hkv, .head_dim = s.d, .value_dim = s.dv, .page_size = pick(rng, 0, 9)});
    cache.append(w.k, w.v);
    if (chance(rng, 0.5)) w.options.key_offset = pick(rng, 0, s.tk);
    const AttentionResult found = attention(w.q, cache, w.options);
    SCOPED_TRACE(describe(w));
    expect_truth(oracle::problem_of(w.q, w.k, w.v, w.options), found);
  });
}

TEST(Offsets, ThereIsOneForEachItemAndNoMore) {
  const Offset each = Tensor::from<std::int64_t>(std::vector<std::int64_t>{3, 5}, {2});
  EXPECT_EQ(each.of(1), 5);
  for (const std::int64_t item : {-1, 2}) {
    expect_error(Error::Kind::argument, {"from 0 to 1", "found " + std::to_string(item)}, [&] { each.of(item); });
  }
  expect_error(Error::Kind::shape, {"(1, 2)"}, [] { Offset(Tensor::zeros({1, 2}, DType::i64)).of(0); });
  EXPECT_EQ(Offset(7).of(100), 7);
}

TEST(Offsets, WhatDoesNotFitIsRefused) {
  const Tensor x = Tensor::ones({2, 1, 3, 4});
  const auto refuse = [&](Error::Kind kind, const std::vector<std::string>& parts, const AttentionOptions& o) {
    expect_error(kind, parts, [&] { attention(x, x, x, o); });
  };
  constexpr std::int64_t most = std::int64_t{1} << 30;
  for (const std::int64_t n : {std::int64_t{-1}, most + 1, std::numeric_limits<std::int64_t>::max()}) {
    refuse(Error::Kind::argument, {"query_offset from 0 to 2^30", std::to_string(n)}, {.query_offset = n});
    refuse(Error::Kind::argument, {"key_offset from 0 to 2^30", std::to_string(n)}, {.key_offset = integers({0, n})});
  }
  refuse(Error::Kind::shape, {"query_offset of shape (b)", "(3,)"}, {.query_offset = integers({0, 1, 2})});
  refuse(Error::Kind::dtype, {"key_offset of dtype int64"}, {.key_offset = Tensor::ones({2})});
  refuse(Error::Kind::argument, {"top_left", "bottom_right"},
         {.mask = Mask::causal(Align::bottom_right), .query_offset = 0});
  refuse(Error::Kind::dtype, {"float32 for 16-bit", "bfloat16 for float32"}, {.output_dtype = DType::bf16});
  // The furthest positions are computed: a causal query far behind the keys sees all, far before them none.
  const Tensor all = attention(x, x, x).output;
  EXPECT_TRUE(identical(attention(x, x, x, {.mask = Mask::causal(), .query_offset = most}).output, all));
  const Tensor none = attention(x, x, x, {.mask = Mask::causal(), .key_offset = most}).output;
  for (const double value : values(none)) EXPECT_EQ(value, 0);
}

// ---- merge --------------------------------------------------------------------------------

TEST(Merge, PartsAreWeighedByTheirSums) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t parts = chance(rng, 0.2) ? 2000 : pick(rng, 1, 6), rows = pick(rng, 1, 70), dv = pick(rng, 1, 9);
    const double shift = chance(rng, 0.3) ? 1e30 : chance(rng, 0.5) ? -1e4 : 0;
    std::vector<Tensor> outputs, lses;
    for (std::int64_t i = 0; i < parts; ++i) {
      outputs.push_back(uniform(rng, {rows, dv}, DType::f32));
      lses.push_back(uniform(rng, {rows}, DType::f32, shift - 3, shift + 3));
      for (std::int64_t r = 0; r < rows; ++r) {
        if (!chance(rng, 0.2)) continue;
        lses.back().set({r}, -kInf);
        outputs.back().slice(0, r, r + 1).fill(chance(rng, 0.5) ? 0 : kNan);  // counts for nothing
      }
    }
    const AttentionResult found = merge(outputs, lses, DType::f64);
    EXPECT_EQ(merge(outputs, lses).output.dtype(), DType::f32);
    for (std::int64_t r = 0; r < rows; ++r) {
      long double most = -HUGE_VALL, sum = 0;
      for (const Tensor& t : lses) most = std::max<long double>(most, static_cast<long double>(t.at({r})));
      std::vector<long double> want(static_cast<std::size_t>(dv), 0);
      for (std::size_t i = 0; i < outputs.size() && most > -HUGE_VALL; ++i) {
        const long double share = std::exp(static_cast<long double>(lses[i].at({r})) - most);
        sum += share;
        for (std::int64_t c = 0; share != 0 && c < dv; ++c)
          want[static_cast<std::size_t>(c)] += share * static_cast<long double>(outputs[i].at({r, c}));
      }
      const auto lse = static_cast<double>(most + std::log(sum));
      if (sum == 0) {
        EXPECT_EQ(found.lse.at({r}), -kInf);
      } else {
        EXPECT_NEAR(found.lse.at({r}), lse, 0x1p-23 * std::max(1.0, std::abs(lse)));
      }
      for (std::int64_t c = 0; c < dv; ++c) {
        const auto x = static_cast<double>(sum == 0 ? 0 : want[static_cast<std::size_t>(c)] / sum);
        EXPECT_NEAR(found.output.at({r, c}), x, 1e-12) << parts << " parts";
      }
    }
  });
}

TEST(Merge, WhatDoesNotFitIsRefused) {
  const Tensor x = Tensor::ones({2, 3}), lse = Tensor::ones({2});
  const auto refuse = [](Error::Kind kind, std::vector<Tensor> outputs, std::vector<Tensor> lses) {
    expect_error(kind, {"[merge]"}, [&] { merge(outputs, lses); });
  };
  refuse(Error::Kind::argument, {}, {});
  refuse(Error::Kind::argument, {x}, {lse, lse});
  refuse(Error::Kind::argument, {x, {}}, {lse, lse});
  refuse(Error::Kind::shape, {x, x.slice(0, 0, 1)}, {lse, lse});
  refuse(Error::Kind::shape, {x, x}, {lse, x});
  refuse(Error::Kind::shape, {x, x.to(DType::bf16)}, {lse, lse});
  refuse(Error::Kind::dtype, {x.to(DType::i64)}, {lse});
}

}  // namespace
}  // namespace attn::test
