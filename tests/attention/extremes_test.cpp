// Integers at the ends of their range: what they mean is what the definition, in 128-bit integers, says, or they are
// refused. Run under the undefined-behaviour sanitizer, a sum that overflows fails, too.
#include <limits>

#include "attention/tiles.hpp"
#include "attn/kv_cache.hpp"

namespace attn::test {
namespace {

__extension__ using Wide = __int128;
using Limits = std::numeric_limits<std::int64_t>;

// 0, ±1, the ends of 31, 32, 62 and 64 bits and their neighbours; or something small.
std::int64_t extreme(std::mt19937& rng) {
  constexpr std::int64_t at[] = {
      0, std::int64_t{1} << 30, std::int64_t{1} << 31, std::int64_t{1} << 32, std::int64_t{1} << 62, Limits::max()};
  if (chance(rng, 0.3)) return pick(rng, -3, 12);
  const auto value = static_cast<Wide>(at[pick(rng, 0, 5)]) * (chance(rng, 0.3) ? -1 : 1) + pick(rng, -2, 2);
  return value > Limits::max()   ? Limits::max()
         : value < Limits::min() ? Limits::min()
                                 : static_cast<std::int64_t>(value);
}

std::int64_t positive(std::mt19937& rng) {
  const std::int64_t value = extreme(rng);
  return value > 0 ? value : 1 + pick(rng, 0, 6);
}

// The call does what it should, or throws Error or std::bad_alloc: nothing else.
template <class Call>
bool accepted(Call&& call) {
  try {
    call();
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Scores become weights.
void softmax_row(std::vector<double>& row) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& x : row) sum += x = most == -kInf ? 0 : std::exp(x - most);
  for (double& x : row) x = sum == 0 ? 0 : x / sum;
}

// Σ_j w_j · v_j for the keys that a rule lets a query see, in float64, with the rule in 128-bit integers.
struct Definition {
  Tensor q, k, v;
  const AttentionOptions* options;

  bool sees(std::int64_t tk, std::int64_t i, std::int64_t j) const {
    const Mask& m = options->mask;
    const Wide tq = q.size(2), centre = Wide{i} + (m.align == Align::bottom_right ? Wide{tk} - tq : 0);
    if (j >= tk) return false;
    if (m.is_causal && j > centre) return false;
    if (m.window_left >= 0 && centre - j > m.window_left) return false;
    if (m.window_right >= 0 && j - centre > m.window_right) return false;
    if (!m.block_keep.defined()) return true;
    return m.block_keep.at({static_cast<std::int64_t>(Wide{i} / m.block_query),
                            static_cast<std::int64_t>(Wide{j} / m.block_key)}) != 0;
  }

  // (b, tq, dv), for tk keys of item b.
  std::vector<double> row(std::int64_t b, std::int64_t tk, std::int64_t i) const {
    std::vector<double> weights, out(static_cast<std::size_t>(v.size(3)), 0);
    for (std::int64_t j = 0; j < k.size(2); ++j) {
      double score = 0;
      for (std::int64_t c = 0; c < q.size(3); ++c) score += q.at({b, 0, i, c}) * k.at({b, 0, j, c});
      weights.push_back(sees(tk, i, j) ? score / std::sqrt(static_cast<double>(q.size(3))) : -kInf);
    }
    softmax_row(weights);
    for (std::int64_t j = 0; j < k.size(2); ++j) {
      for (std::int64_t c = 0; c < v.size(3); ++c)
        out[static_cast<std::size_t>(c)] += weights[static_cast<std::size_t>(j)] * v.at({b, 0, j, c});
    }
    return out;
  }
};

AttentionOptions extreme_options(std::mt19937& rng, std::int64_t tq, std::int64_t tk) {
  AttentionOptions o;
  o.mask.is_causal = chance(rng, 0.3);
  o.mask.align = chance(rng, 0.5) ? Align::top_left : Align::bottom_right;
  if (chance(rng, 0.7)) o.mask.window_left = extreme(rng);
  if (chance(rng, 0.7)) o.mask.window_right = extreme(rng);
  if (chance(rng, 0.4)) {
    const std::int64_t query = positive(rng), key = positive(rng);
    const auto blocks = [](std::int64_t t, std::int64_t size) { return t / size + (t % size != 0); };
    o.mask = o.mask & Mask::blocks(booleans(rng, {blocks(tq, query), blocks(tk, key)}, 0.7), query, key);
  }
  return o;
}

void expect_defined(const Tensor& found, const Definition& is, const std::vector<std::int64_t>& lengths) {
  for (std::int64_t b = 0; b < found.size(0); ++b) {
    for (std::int64_t i = 0; i < found.size(2); ++i) {
      const auto want = is.row(b, lengths[static_cast<std::size_t>(b)], i);
      for (std::int64_t c = 0; c < found.size(3); ++c)
        ASSERT_NEAR(found.at({b, 0, i, c}), want[static_cast<std::size_t>(c)], 64 * 0x1p-24) << b << ", " << i;
    }
  }
}

TEST(Extremes, WindowsAndBlocksMeanWhatTheySay) {
  int valid = 0;
  for_seeds(600, [&](std::mt19937& rng) {
    const std::int64_t b = pick(rng, 1, 2), tq = pick(rng, 1, 9), tk = pick(rng, 1, 12);
    const Tensor q = uniform(rng, {b, 1, tq, 4}), k = uniform(rng, {b, 1, tk, 4}), v = uniform(rng, {b, 1, tk, 3});
    AttentionOptions o = extreme_options(rng, tq, tk);
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(b), tk);
    if (chance(rng, 0.4)) {
      for (std::int64_t& n : lengths) n = chance(rng, 0.2) ? extreme(rng) : pick(rng, 0, tk);
      o.mask.key_lengths = integers(lengths);
    }
    SCOPED_TRACE("window " + std::to_string(o.mask.window_left) + ", " + std::to_string(o.mask.window_right) +
                 " blocks " + std::to_string(o.mask.block_query) + ", " + std::to_string(o.mask.block_key));
    const Definition is{q.to(DType::f32).to(DType::f64), k.to(DType::f32).to(DType::f64),
                        v.to(DType::f32).to(DType::f64), &o};
    bool fits = o.mask.window_left >= -1 && o.mask.window_right >= -1;
    for (const std::int64_t n : lengths) fits = fits && n >= 0 && n <= tk;
    for (const DType dtype : {DType::f32, DType::f64}) {  // fused, and composed
      AttentionResult found;
      const bool ran = accepted([&] { found = attention(is.q.to(dtype), is.k.to(dtype), is.v.to(dtype), o); });
      ASSERT_EQ(ran, fits);
      if (!ran) continue;
      ++valid;
      expect_defined(found.output, is, lengths);
      const Tensor g = Tensor::ones(found.output.shape(), dtype);
      attention_backward(g, is.q.to(dtype), is.k.to(dtype), is.v.to(dtype), o, found);
    }
  });
  EXPECT_GT(valid, static_cast<int>(seeds(600) / 2));
}

TEST(Extremes, TheWidestWindowHidesNothing) {
  std::mt19937 rng(1);
  const Tensor q = uniform(rng, {1, 1, 5, 4}, DType::f32), k = uniform(rng, {1, 1, 9, 4}, DType::f32);
  for (const Align align : {Align::top_left, Align::bottom_right}) {
    const Tensor all = attention(q, k, k).output;
    for (const auto& [left, right] : {std::pair{std::int64_t{-1}, Limits::max()}, {Limits::max(), -1}}) {
      EXPECT_TRUE(identical(attention(q, k, k, {.mask = Mask::window(left, right, align)}).output, all));
    }
  }
}

TEST(Extremes, WindowsOfACache) {
  for_seeds(200, [](std::mt19937& rng) {
    const std::int64_t tk = pick(rng, 1, 12), tq = pick(rng, 1, 8), page = chance(rng, 0.5) ? 0 : pick(rng, 1, 5);
    const Tensor q = uniform(rng, {1, 1, tq, 4}, DType::f32), k = uniform(rng, {1, 1, tk, 4}, DType::f32);
    KVCache cache({.head_dim = 4, .page_size = page});
    cache.append(k, k);
    AttentionOptions o = extreme_options(rng, tq, tk);
    AttentionResult found;
    const bool ran = accepted([&] { found = attention(q, cache, o); });
    ASSERT_EQ(ran, o.mask.window_left >= -1 && o.mask.window_right >= -1);
    if (ran) expect_defined(found.output, {q.to(DType::f64), k.to(DType::f64), k.to(DType::f64), &o}, {tk});
  });
}

// Sizes that no memory holds: of a tensor of one number, expanded, or of one without elements.
TEST(Extremes, SizesPastTheirRangeAreRefused) {
  for_seeds(400, [](std::mt19937& rng) {
    std::int64_t size[5];  // b, h, tq, tk, d
    for (std::int64_t& n : size) n = chance(rng, 0.8) ? pick(rng, 0, 2) : positive(rng);
    const auto is_large = [](std::int64_t n) { return n > 12; };
    for (std::int64_t& n : size) n = is_large(n) ? std::max(n, std::int64_t{1} << 30) : n;
    const bool fits = std::none_of(size, size + 5, is_large) && size[4] > 0;
    const auto make = [&](std::int64_t tokens) {
      return Tensor::ones({1, 1, 1, 1}).expand({size[0], size[1], tokens, size[4]});
    };
    const bool ran = accepted([&] {
      const Tensor q = make(size[2]), k = make(size[3]);
      attention(q, k, k);
      attention_backward(q, q, k, k);
    });
    EXPECT_EQ(ran, fits) << size[0] << " " << size[1] << " " << size[2] << " " << size[3] << " " << size[4];
  });
}

TEST(Extremes, ConfigurationsOfACacheAreComputedOrRefused) {
  for_seeds(400, [](std::mt19937& rng) {
    const auto size = [&] { return chance(rng, 0.7) ? pick(rng, 1, 3) : extreme(rng); };
    const auto length = [&] { return chance(rng, 0.7) ? pick(rng, 0, 2) : extreme(rng); };
    KVCacheConfig c{.batch = size(), .kv_heads = size(), .head_dim = size(), .value_dim = length()};
    c.page_size = length(), c.capacity = length();
    const auto least = std::max({c.batch, c.kv_heads, c.head_dim, c.value_dim, c.page_size, c.capacity});
    if (least > 12 && least < Limits::max() / 4 && least >= (1 << 20)) return;  // may be had, with memory
    accepted([&] {
      KVCache cache(c);
      const Tensor k = Tensor::ones({c.batch, c.kv_heads, 2, c.head_dim});
      const Tensor v = Tensor::ones({c.batch, c.kv_heads, 2, cache.config().value_dim});
      cache.append(k, v);
      EXPECT_EQ(cache.max_length(), 2);
      const std::int64_t item = extreme(rng), end = extreme(rng);
      EXPECT_EQ(accepted([&] { cache.length(item); }), item >= 0 && item < c.batch);
      EXPECT_EQ(accepted([&] { cache.truncate(0, end); }), end >= 0 && end <= 2);
    });
  });
  KVCache cache({});
  const Tensor one = Tensor::ones({1, 1, 1, 1});
  cache.append(one, one);
  const Tensor many = one.expand({1, 1, Limits::max(), 1});
  expect_error(Error::Kind::argument, {"further tokens of an item", std::to_string(Limits::max())},
               [&] { cache.append(many, many); });
  expect_error(Error::Kind::argument, {"further tokens of an item"},
               [&] { cache.append(0, many.select(0, 0), many.select(0, 0)); });
  EXPECT_EQ(cache.max_length(), 1);
}

TEST(Extremes, RowsAndStartsAreReadWithAllTheirBits) {
  std::mt19937 rng(1);
  const Tensor x = uniform(rng, {1, 1, 3, 4}, DType::f32);
  for (const std::int64_t n : {Limits::max(), Limits::min(), std::int64_t{3}, std::int64_t{-1}}) {
    AttentionOptions o{.return_weights = true, .weight_rows = integers({n})};
    expect_error(Error::Kind::argument, {"weight_rows from 0 to tq - 1 = 2", std::to_string(n)},
                 [&] { attention(x, x, x, o); });
    if (n == 3) continue;
    expect_error(Error::Kind::argument, {"key_lengths from 0 to tk = 3", std::to_string(n)},
                 [&] { attention(x, x, x, {.mask = Mask::lengths(integers({n}))}); });
  }
  const Tensor wrong = integers({0, Limits::max(), 3});
  EXPECT_FALSE(accepted([&] { attention(x, x, x, {.mask = Mask::sequences(wrong, wrong)}); }));
}

TEST(Extremes, ACausalMaskWithoutKeysTakesNoTime) {
  EXPECT_EQ(causal_keep(Limits::max(), 0).numel(), 0);
  EXPECT_EQ(causal_keep(0, Limits::max(), Align::bottom_right).numel(), 0);
}

TEST(Extremes, IndicesOfTensors) {
  for_seeds(2000, [](std::mt19937& rng) {
    const Tensor t = uniform(rng, {3, 4, 5});
    const std::int64_t dim = extreme(rng), begin = extreme(rng), end = extreme(rng);
    const bool has_dim = dim >= -3 && dim < 3;
    const std::int64_t size = has_dim ? t.shape()[static_cast<std::size_t>(dim < 0 ? dim + 3 : dim)] : 0;
    EXPECT_EQ(accepted([&] { t.size(dim), t.stride(dim); }), has_dim);
    EXPECT_EQ(accepted([&] { t.slice(dim, begin, end); }), has_dim && begin >= 0 && begin <= end && end <= size);
    EXPECT_EQ(accepted([&] { t.select(dim, begin); }), has_dim && begin >= -size && begin < size);
    EXPECT_EQ(accepted([&] { t.unsqueeze(dim); }), dim >= -4 && dim <= 3);
    EXPECT_EQ(accepted([&] { t.transpose(dim, 0); }), has_dim);
    EXPECT_EQ(accepted([&] { t.at({begin, 0, 0}); }), begin >= 0 && begin < 3);
    const std::int64_t other = extreme(rng);
    const Wide product = Wide{dim} * begin;
    const bool open = (dim == -1 && begin > 0 && 60 % begin == 0) || (begin == -1 && dim > 0 && 60 % dim == 0);
    EXPECT_EQ(accepted([&] { t.view({dim, begin}); }), open || (dim > 0 && begin > 0 && product == 60));
    const bool zero = dim == 0 || begin == 0 || other == 0, sizes = dim >= 0 && begin >= 0 && other >= 0;
    const bool fits = sizes && (zero || (product <= Limits::max() && product * other <= Limits::max()));
    EXPECT_EQ(accepted([&] { Tensor::ones({1}).expand({dim, begin, other}); }), fits);
    accepted([&] { (Shape{dim, begin, other}).contiguous_strides(); });
  });
}

}  // namespace
}  // namespace attn::test
