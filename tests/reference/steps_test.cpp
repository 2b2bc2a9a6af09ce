// Every step against the same computed plainly here, in long double, element by element.
#include "attn/reference.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

namespace ref = attn::reference;
using Kind = Error::Kind;

const std::vector<DType> kFloats{DType::f64, DType::f32, DType::f16, DType::bf16};

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-15;
    case DType::f32:
      return 1e-6;
    case DType::f16:
      return 1e-3;
    default:
      return 1e-2;
  }
}

// Random inputs of the dtype and of random strides; what the test computes from is what was stored.
struct Draw {
  std::mt19937& rng;
  DType dtype;

  Tensor operator()(const Shape& shape, double low = -1, double high = 1) const {
    const Tensor t = uniform(rng, shape, dtype, low, high);
    return chance(rng, 0.5) ? scattered(rng, t) : t;
  }
};

template <class Body>
void for_dtypes_and_seeds(Body&& body) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(std::string(name(dtype)));
    for_seeds(15, [&](std::mt19937& rng) { body(Draw{rng, dtype}, rng, epsilon(dtype)); });
  }
}

// f(i, j) as a (rows, columns) tensor.
template <class F>
Tensor table(std::int64_t rows, std::int64_t columns, F&& f) {
  const Tensor t = Tensor::empty({rows, columns}, DType::f64);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) t.data<double>()[i * columns + j] = static_cast<double>(f(i, j));
  }
  return t;
}

template <class F>
long double sum_over(std::int64_t n, F&& f) {
  long double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += f(i);
  return sum;
}

// ---- products ---------------------------------------------------------------------------

TEST(Matmul, IsTheSumOfProducts) {
  for_dtypes_and_seeds([](const Draw& draw, std::mt19937& rng, double eps) {
    const std::int64_t m = pick(rng, 0, 5), k = pick(rng, 0, 5), n = pick(rng, 0, 5);
    const Tensor a = draw({m, k}), b = draw({k, n});
    const Tensor expected = table(m, n, [&](auto i, auto j) {
      return sum_over(k, [&](auto l) { return static_cast<long double>(a.at({i, l})) * b.at({l, j}); });
    });
    const Tensor found = ref::matmul(a, b);
    EXPECT_EQ(found.dtype(), draw.dtype);
    expect_close(found, expected, eps, "matmul");
  });
}

// Whichever processor's instructions compute it: a product of float32 numbers is exact in double, and sums go in order.
TEST(Matmul, HasTheBitsOfSumsInOrder) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t m = pick(rng, 1, 9), k = pick(rng, 1, 40), n = pick(rng, 1, 18);  // across the edges of tiles
    const Tensor a = uniform(rng, {m, k}, DType::f32), b = uniform(rng, {k, n}, DType::f32);
    Tensor expected = Tensor::zeros({m, n});
    a.slice(1, pick(rng, 0, k), k).fill(0);  // as a causal mask leaves a row
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) sum += a.at({i, l}) * b.at({l, j});
        expected.set({i, j}, sum);
      }
    }
    EXPECT_TRUE(identical(ref::matmul(a, b), expected));
  });
}

TEST(Matmul, BroadcastsLeadingDimensions) {
  for_seeds(10, [](std::mt19937& rng) {
    const Tensor a = uniform(rng, {3, 1, 2, 4}), b = uniform(rng, {2, 4, 5}), found = ref::matmul(a, b);
    ASSERT_EQ(found.shape(), (Shape{3, 2, 2, 5}));
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 2; ++j) {
        const Tensor expected = ref::matmul(a.select(0, i).select(0, 0), b.select(0, j));
        EXPECT_TRUE(identical(found.select(0, i).select(0, j), expected));
      }
    }
  });
  EXPECT_EQ(ref::matmul(Tensor::ones({0, 2, 3}), Tensor::ones({1, 3, 4})).shape(), (Shape{0, 2, 4}));
}

TEST(Matmul, ZeroTimesNanIsNan) {
  for (const float x : {NAN, INFINITY}) {
    EXPECT_TRUE(std::isnan(ref::matmul(Tensor::of({{0, 1}}), Tensor::of({x, 1}).unsqueeze(1)).item()));
  }
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  expect_error(Kind::shape, {"(2, 3) and (2, 3)"}, [] { ref::matmul(Tensor::ones({2, 3}), Tensor::ones({2, 3})); });
  expect_error(Kind::shape, {"two dimensions"}, [] { ref::matmul(Tensor::ones({3}), Tensor::ones({3, 1})); });
  expect_error(Kind::shape, {"broadcast", "(2, 1, 3) and (3, 3, 1)"}, [] {
    ref::matmul(Tensor::ones({2, 1, 3}), Tensor::ones({3, 3, 1}));
  });
  expect_error(Kind::dtype, {"float32", "float64"}, [] {
    ref::matmul(Tensor::ones({1, 1}), Tensor::ones({1, 1}, DType::f64));
  });
  expect_error(Kind::dtype, {"int64"}, [] {
    ref::matmul(Tensor::ones({1, 1}, DType::i64), Tensor::ones({1, 1}, DType::i64));
  });
}

TEST(Project, IsXTimesWeightTransposedPlusBias) {
  for_dtypes_and_seeds([](const Draw& draw, std::mt19937& rng, double eps) {
    const std::int64_t t = pick(rng, 0, 4), d_in = pick(rng, 1, 5), d_out = pick(rng, 1, 5);
    const Tensor x = draw({t, d_in}), w = draw({d_out, d_in}), b = draw({d_out});
    const auto plain = [&](bool biased) {
      return table(t, d_out, [&](auto i, auto j) {
        const auto sum = sum_over(d_in, [&](auto l) { return static_cast<long double>(x.at({i, l})) * w.at({j, l}); });
        return sum + (biased ? b.at({j}) : 0);
      });
    };
    expect_close(ref::project(x, w), plain(false), eps, "without bias");
    expect_close(ref::project(x, w, b), plain(true), 2 * eps, "with bias");
    expect_close(ref::project(x.unsqueeze(1).unsqueeze(0), w, b), plain(true).unsqueeze(1).unsqueeze(0), 2 * eps,
                 "leading dimensions");
  });
}

TEST(Project, RefusesWhatDoesNotFit) {
  expect_error(Kind::shape, {"(2, 3) and (4, 2)"}, [] { ref::project(Tensor::ones({2, 3}), Tensor::ones({4, 2})); });
  expect_error(Kind::shape, {"(4, 3)", "(3,)"}, [] {
    ref::project(Tensor::ones({2, 3}), Tensor::ones({4, 3}), Tensor::ones({3}));
  });
}

TEST(Heads, SplitIsAViewAndMergeItsInverse) {
  for_seeds(10, [](std::mt19937& rng) {
    const std::int64_t h = pick(rng, 1, 4), d = pick(rng, 1, 4);
    const Tensor x = scattered(rng, uniform(rng, {2, 3, h * d}, DType::f32));
    const Tensor split = ref::split_heads(x, h);
    ASSERT_EQ(split.shape(), (Shape{2, h, 3, d}));
    EXPECT_EQ(split.raw(), x.raw());
    for (std::int64_t i = 0; i < h * d; ++i) EXPECT_EQ(split.at({1, i / d, 2, i % d}), x.at({1, 2, i}));
    EXPECT_TRUE(identical(ref::merge_heads(split), x));
  });
  expect_error(Kind::shape, {"d = 3, num_heads = 2"}, [] { ref::split_heads(Tensor::ones({1, 3}), 2); });
  EXPECT_THROW(ref::split_heads(Tensor::ones({1, 3}), 0), Error);
  EXPECT_THROW(ref::split_heads(Tensor::ones({3}), 1), Error);
  EXPECT_THROW(ref::merge_heads(Tensor::ones({1, 3})), Error);
}

TEST(Scores, LoopAndMatmulAreTheDotProducts) {
  for_dtypes_and_seeds([](const Draw& draw, std::mt19937& rng, double eps) {
    const std::int64_t tq = pick(rng, 0, 4), tk = pick(rng, 0, 4), d = pick(rng, 1, 6);
    const Tensor q = draw({tq, d}), k = draw({tk, d});
    const Tensor expected = table(tq, tk, [&](auto i, auto j) {
      return sum_over(d, [&](auto c) { return static_cast<long double>(q.at({i, c})) * k.at({j, c}); });
    });
    expect_close(ref::scores(q, k), expected, eps, "matmul");
    expect_close(ref::scores_by_loop(q, k), expected, eps, "loop");
    EXPECT_TRUE(identical(ref::scores(q, k), ref::scores_by_loop(q, k)));
  });
  expect_error(Kind::shape, {"(2, 3) and (2, 4)"}, [] { ref::scores(Tensor::ones({2, 3}), Tensor::ones({2, 4})); });
  expect_error(Kind::shape, {"(2, 3) and (2, 4)"}, [] {
    ref::scores_by_loop(Tensor::ones({2, 3}), Tensor::ones({2, 4}));
  });
  EXPECT_THROW(ref::scores_by_loop(Tensor::ones({2, 3}), Tensor::ones({2, 3}, DType::f64)), Error);
}

TEST(WeightedSum, IsTheSumOfValuesByWeight) {
  for_dtypes_and_seeds([](const Draw& draw, std::mt19937& rng, double eps) {
    const std::int64_t tq = pick(rng, 0, 4), tk = pick(rng, 0, 4), dv = pick(rng, 0, 4);
    const Tensor w = draw({tq, tk}, 0, 1), v = draw({tk, dv});
    const Tensor expected = table(tq, dv, [&](auto i, auto c) {
      return sum_over(tk, [&](auto j) { return static_cast<long double>(w.at({i, j})) * v.at({j, c}); });
    });
    expect_close(ref::weighted_sum(w, v), expected, eps, "weighted sum");
  });
  expect_error(Kind::shape, {"(2, 3) and (2, 3)"}, [] {
    ref::weighted_sum(Tensor::ones({2, 3}), Tensor::ones({2, 3}));
  });
}

TEST(WeightedSum, AZeroWeightTakesNothingFromItsValue) {
  for (const double poison : {kNan, kInf, -kInf}) {
    const Tensor w = tensor({0.5, 0, 0.5}, {1, 3}, DType::f32);
    const Tensor v = tensor({1, 2, poison, poison, 3, 4}, {3, 2}, DType::f32);
    EXPECT_EQ(values(ref::weighted_sum(w, v)), (std::vector<double>{2, 3}));
    const auto grad = ref::weighted_sum_backward(Tensor::ones({1, 2}), w, v);
    EXPECT_EQ(values(grad.v), (std::vector<double>{0.5, 0.5, 0, 0, 0.5, 0.5}));
    EXPECT_TRUE(std::isnan(values(
        ref::weighted_sum(tensor({1, 1e-30, 0}, {1, 3}, DType::f32), tensor({1, kNan, 1}, {3, 1}, DType::f32)))[0]));
  }
}

// ---- elementwise ------------------------------------------------------------------------

TEST(Elementwise, ScaleSoftcapAndAdd) {
  for_dtypes_and_seeds([](const Draw& draw, std::mt19937&, double eps) {
    const Tensor s = draw({3, 4}, -5, 5), bias = draw({4}, -5, 5);
    const auto at = [&](auto i, auto j) { return static_cast<long double>(s.at({i, j})); };
    expect_close(ref::scale(s, -0.3), table(3, 4, [&](auto i, auto j) { return at(i, j) * -0.3L; }), eps, "scale");
    expect_close(ref::softcap(s, 2.5), table(3, 4, [&](auto i, auto j) { return 2.5L * std::tanh(at(i, j) / 2.5L); }),
                 eps, "softcap");
    expect_close(ref::add(s, bias), table(3, 4, [&](auto i, auto j) { return at(i, j) + bias.at({j}); }), eps, "add");
  });
  EXPECT_THROW(ref::add(Tensor::ones({2, 3}), Tensor::ones({2})), Error);
  EXPECT_THROW(ref::add(Tensor::ones({2}), Tensor::ones({2}, DType::f64)), Error);
  expect_error(Kind::dtype, {"[scale]", "int32"}, [] { ref::scale(Tensor::ones({2}, DType::i32), 1); });
}

TEST(Mask, FillsAndZeroesWhereNotKept) {
  for_seeds(10, [](std::mt19937& rng) {
    const Tensor s = scattered(rng, uniform(rng, {2, 3, 4})), keep = booleans(rng, {3, 1}, 0.5);
    const auto in = values(s), filled = values(ref::mask_fill(s, keep)), zeroed = values(ref::mask_zero(s, keep));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const bool kept = keep.at({static_cast<std::int64_t>(i / 4 % 3), 0}) != 0;
      EXPECT_EQ(filled[i], kept ? in[i] : -kInf);
      EXPECT_EQ(zeroed[i], kept ? in[i] : 0);
    }
  });
  EXPECT_THROW(ref::mask_fill(Tensor::ones({2, 2}), Tensor::ones({2, 2})), Error);
  EXPECT_THROW(ref::mask_fill(Tensor::ones({2, 2}), Tensor::ones({3}, DType::boolean)), Error);
  EXPECT_THROW(ref::mask_fill(Tensor::ones({2, 2}), {}), Error);
}

TEST(Mask, AMaskedNanIsGone) {
  const Tensor s = tensor({kNan, 1}, {1, 2}), keep = tensor({0, 1}, {2}, DType::boolean);
  EXPECT_EQ(values(ref::mask_fill(s, keep)), (std::vector<double>{-kInf, 1}));
  EXPECT_EQ(values(ref::mask_zero(s, keep)), (std::vector<double>{0, 1}));
}

TEST(Mask, BothRoutesGiveTheSameWeights) {
  for_seeds(20, [](std::mt19937& rng) {
    const std::int64_t t = pick(rng, 1, 6);
    const Tensor s = uniform(rng, {2, t, t}, DType::f64, -3, 3), keep = booleans(rng, {t, t}, 0.6);
    expect_close(ref::mask_renormalise(ref::softmax(s), keep), ref::softmax(ref::mask_fill(s, keep)), 1e-14, "routes");
  });
  const Tensor none = Tensor::zeros({2, 2}, DType::boolean);
  EXPECT_EQ(values(ref::mask_renormalise(Tensor::full({2, 2}, 0.5), none)), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Dropout, ScalesWhatIsKept) {
  const Tensor w = Tensor::of({1, 2, 3, 4}), keep = tensor({1, 0, 0, 1}, {4}, DType::boolean);
  EXPECT_EQ(values(ref::dropout(w, keep, 0.75)), (std::vector<double>{4, 0, 0, 16}));
  EXPECT_EQ(values(ref::dropout(w, keep, 0)), (std::vector<double>{1, 0, 0, 4}));
  EXPECT_EQ(values(ref::dropout(w, Tensor::zeros({4}, DType::boolean), 1)), (std::vector<double>{0, 0, 0, 0}));
  for (const double p : {-0.5, 2.0, kNan}) {
    expect_error(Kind::argument, {"[0, 1]"}, [&] { ref::dropout(w, keep, p); });
  }
}

// ---- normalisation ----------------------------------------------------------------------

TEST(Softmax, AllThreeNormalisationsAndLogSumExp) {
  for_dtypes_and_seeds([](const Draw& draw, std::mt19937& rng, double eps) {
    const std::int64_t n = pick(rng, 1, 6);
    const Tensor s = draw({4, n}, -4, 4), positive = draw({4, n}, 0.1, 4);
    const auto total = [&](auto i) { return sum_over(n, [&](auto l) { return std::exp(1.0L * s.at({i, l})); }); };
    const Tensor expected = table(4, n, [&](auto i, auto j) { return std::exp(1.0L * s.at({i, j})) / total(i); });
    expect_close(ref::softmax(s), expected, eps, "softmax");
    expect_close(ref::softmax_naive(s), expected, eps, "naive softmax");
    const Tensor lse = table(4, 1, [&](auto i, auto) { return std::log(total(i)); }).select(1, 0);
    expect_close(ref::log_sum_exp(s), lse, eps, "log sum exp");
    const auto row = [&](auto i) { return sum_over(n, [&](auto l) { return 1.0L * positive.at({i, l}); }); };
    expect_close(ref::normalise_by_sum(positive),
                 table(4, n,
                       [&](auto i, auto j) {
                         return positive.at({i, j}) / row(i);
                       }),
                 eps, "by sum");
  });
}

TEST(Softmax, NaiveOverflowsToNanAndStableDoesNot) {
  const Tensor s = Tensor::of({1000, 0, 0});
  EXPECT_TRUE(std::isnan(values(ref::softmax_naive(s))[0]));
  EXPECT_EQ(values(ref::softmax_naive(s))[1], 0);
  EXPECT_EQ(values(ref::softmax(s)), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(ref::log_sum_exp(s).item(), 1000);
  EXPECT_FALSE(std::isnan(values(ref::softmax_naive(Tensor::of({88, 0})))[0]));
  EXPECT_TRUE(std::isnan(values(ref::softmax_naive(Tensor::of({89, 0})))[0])) << "in float32, not wider";
}

TEST(Softmax, AFullyMaskedRowGivesZeros) {
  const Tensor s = tensor({-kInf, -kInf, 0, -kInf}, {2, 2}, DType::f32);
  EXPECT_EQ(values(ref::softmax(s)), (std::vector<double>{0, 0, 1, 0}));
  EXPECT_EQ(values(ref::log_sum_exp(s)), (std::vector<double>{-kInf, 0}));
  const Tensor zeros = tensor({0, 0, 1, 0}, {2, 2}, DType::f32);
  EXPECT_EQ(values(ref::softmax_backward(tensor({kNan, kInf, 3, kNan}, {2, 2}, DType::f32), zeros)),
            (std::vector<double>{0, 0, 0, 0}));
}

TEST(Softmax, NanSpreadsOverItsRowOnly) {
  for (const auto& row : {std::vector<double>{kNan, 1, 2}, {1, kNan, 2}, {1, 2, kNan}}) {
    std::vector<double> both = row;
    both.insert(both.end(), {1, 1, 1});
    const Tensor s = tensor(both, {2, 3});
    const auto w = values(ref::softmax(s)), lse = values(ref::log_sum_exp(s));
    EXPECT_TRUE(std::isnan(w[0]) && std::isnan(w[1]) && std::isnan(w[2]));
    EXPECT_NEAR(w[3], 1 / 3.0, 1e-15);
    EXPECT_TRUE(std::isnan(lse[0]) && !std::isnan(lse[1]));
  }
  const Tensor beside_masked = tensor({-kInf, kNan}, {1, 2});
  EXPECT_TRUE(std::isnan(values(ref::softmax(beside_masked))[1]));
  EXPECT_TRUE(std::isnan(ref::log_sum_exp(beside_masked).item()));
}

TEST(Softmax, EmptyAndScalarInputs) {
  EXPECT_EQ(ref::softmax(Tensor::ones({3, 0})).shape(), (Shape{3, 0}));
  EXPECT_EQ(values(ref::log_sum_exp(Tensor::ones({2, 0}))), (std::vector<double>{-kInf, -kInf}));
  EXPECT_EQ(ref::softmax(Tensor::ones({0, 3})).numel(), 0);
  EXPECT_THROW(ref::softmax(Tensor::ones({})), Error);
  EXPECT_THROW(ref::softmax_naive(Tensor::ones({})), Error);
  EXPECT_THROW(ref::log_sum_exp(Tensor::ones({})), Error);
  expect_error(Kind::shape, {"(1, 3)", "(2, 3)"}, [] {
    ref::softmax_backward(Tensor::ones({2, 3}), Tensor::ones({1, 3}));
  });
}

// ---- averages ---------------------------------------------------------------------------

TEST(AveragePast, ThreeWaysAgreeWithTheMean) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for_seeds(10, [&](std::mt19937& rng) {
      const std::int64_t t = pick(rng, 0, 6), d = pick(rng, 0, 3);
      const Tensor x = scattered(rng, uniform(rng, {t, d}, dtype));
      const Tensor expected = table(t, d, [&](auto i, auto c) {
        return sum_over(i + 1, [&](auto j) { return 1.0L * x.at({j, c}); }) / static_cast<long double>(i + 1);
      });
      for (const auto way : {ref::AverageBy::loop, ref::AverageBy::triangular, ref::AverageBy::softmax}) {
        expect_close(ref::average_past(x, way), expected, dtype == DType::f64 ? 1e-15 : 2e-7, "average");
        expect_close(ref::average_past(x.unsqueeze(0).expand({2, t, d}), way).select(0, 1), expected, 2e-7, "batch");
      }
    });
  }
  EXPECT_THROW(ref::average_past(Tensor::ones({3}), ref::AverageBy::loop), Error);
  EXPECT_THROW(ref::average_past(Tensor::ones({3, 1}, DType::i64), ref::AverageBy::loop), Error);
}

TEST(AveragePast, WeightsAreLowerTriangularRows) {
  for (const auto way : {ref::AverageBy::triangular, ref::AverageBy::softmax}) {
    const Tensor w = ref::average_weights(3, way);
    EXPECT_EQ(w.dtype(), DType::f32);
    expect_close(w, tensor({1, 0, 0, 0.5, 0.5, 0, 1 / 3.0, 1 / 3.0, 1 / 3.0}, {3, 3}), 1e-7, "weights");
  }
}

}  // namespace
}  // namespace attn::test
