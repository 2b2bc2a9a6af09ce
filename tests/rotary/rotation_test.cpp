// The rotation against its definition in float64, its gradient, its promises, and what it refuses.
#include <omp.h>

#include <array>

#include "attn/rotary.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

RotaryFrequencies frequencies(std::int64_t rotary_dim, RotaryLayout layout = RotaryLayout::halves, double factor = 1) {
  RotaryFrequencies result = rotary_frequencies({.head_dim = rotary_dim, .layout = layout});
  result.attention_factor = factor;
  return result;
}

// Su et al. 2021, equation 15: as complex numbers, in double. `back` turns the other way.
Tensor turned(const Tensor& x, const RotaryFrequencies& f, const std::vector<std::int64_t>& positions, bool back) {
  const Tensor out = x.to(DType::f64).clone();
  const auto half = static_cast<std::int64_t>(f.inv_freq.size());
  const std::int64_t t = x.size(-2), per_item = x.numel() / (x.size(0) * t * x.size(-1));
  const bool batch = static_cast<std::int64_t>(positions.size()) != t;
  Tensor rows = out.view({x.size(0) * per_item, t, x.size(-1)});
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    for (std::int64_t i = 0; i < t; ++i) {
      const auto at = static_cast<float>(positions[static_cast<std::size_t>(batch ? r / per_item * t + i : i)]);
      for (std::int64_t p = 0; p < half; ++p) {
        const float angle = at * f.inv_freq[static_cast<std::size_t>(p)];
        const double c = std::cos(static_cast<double>(angle)) * f.attention_factor;
        const double s = (back ? -1 : 1) * std::sin(static_cast<double>(angle)) * f.attention_factor;
        const bool halves = f.layout == RotaryLayout::halves;
        const std::int64_t first = halves ? p : 2 * p, second = halves ? p + half : 2 * p + 1;
        const double a = rows.at({r, i, first}), b = rows.at({r, i, second});
        rows.set({r, i, first}, a * c - b * s);
        rows.set({r, i, second}, a * s + b * c);
      }
    }
  }
  return out;
}

// f() on that many threads.
template <class F>
auto with_threads(int threads, const F& f) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  auto result = f();
  omp_set_num_threads(before);
  return result;
}

double epsilon(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-23;  // f64 is turned by float32's cos
}

TEST(Rotation, IsTheDefinitionForEveryDtypeLayoutAndStride) {
  for_seeds(60, [](std::mt19937& rng) {
    const std::int64_t b = pick(rng, 1, 3), h = pick(rng, 1, 3), t = pick(rng, 1, 20), half = pick(rng, 1, 20);
    const std::int64_t d = 2 * half + (chance(rng, 0.5) ? pick(rng, 1, 9) : 0);
    const auto dtype = std::array{DType::f32, DType::f64, DType::bf16, DType::f16}[rng() % 4];
    const auto layout = chance(rng, 0.5) ? RotaryLayout::halves : RotaryLayout::interleaved;
    const auto f = frequencies(2 * half, layout, chance(rng, 0.5) ? 1.25 : 1);
    const bool batch = chance(rng, 0.5);
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < (batch ? b * t : t); ++i) positions.push_back(pick(rng, 0, 3000));
    const Tensor x = uniform(rng, {b, h, t, d}, dtype, -2, 2), at = integers(positions, batch ? Shape{b, t} : Shape{t});
    const RotaryTable table = rotary_table(f, at);
    const Tensor given = chance(rng, 0.5) ? scattered(rng, x) : x;
    const double tolerance = 4 * epsilon(dtype);
    expect_close(rotary(given, table), turned(x, f, positions, false), tolerance, "rotary");
    expect_close(rotary_backward(given, table), turned(x, f, positions, true), tolerance, "rotary_backward");
    EXPECT_EQ(rotary(given, table).dtype(), dtype);
    const Tensor own = given.clone().transpose(1, 2).clone().transpose(1, 2);
    rotary_in_place(own, table);
    EXPECT_TRUE(identical(own, rotary(given, table)));
  });
}

TEST(Rotation, IsOfPositionsFromAnOffset) {
  const auto f = frequencies(8);
  std::mt19937 rng(1);
  const Tensor x = uniform(rng, {2, 3, 8}, DType::f32);
  EXPECT_TRUE(identical(rotary(x, rotary_table(f, 3, 41)), rotary(x, rotary_table(f, integers({41, 42, 43})))));
  const RotaryTable all = rotary_table(f, 64);
  EXPECT_TRUE(
      identical(rotary(x, rotary_rows(all, integers({5, 63, 0}))), rotary(x, rotary_table(f, integers({5, 63, 0})))));
}

TEST(Rotation, GradientIsTheTransposedRotation) {
  for_seeds(6, [](std::mt19937& rng) {
    const auto layout = chance(rng, 0.5) ? RotaryLayout::halves : RotaryLayout::interleaved;
    const auto table = rotary_table(frequencies(6, layout, 1.5), 4, pick(rng, 0, 50));
    const Tensor x = uniform(rng, {2, 4, 7}), g = uniform(rng, {2, 4, 7});
    expect_gradient(rotary_backward(g, table), x, [&] { return dot(rotary(x, table), g); });
  });
}

TEST(Rotation, ScoresDependOnTheDistanceAlone) {
  std::mt19937 rng(2);
  const auto f = frequencies(16);
  const Tensor q = uniform(rng, {1, 16}), k = uniform(rng, {1, 16});
  const auto score = [&](std::int64_t i, std::int64_t j) {
    return dot(rotary(q, rotary_table(f, 1, i)), rotary(k, rotary_table(f, 1, j)));
  };
  for (const std::int64_t i : {7, 50, 400}) EXPECT_NEAR(score(i, i - 5), score(5, 0), 1e-4);
  EXPECT_GT(std::abs(score(9, 0) - score(5, 0)), 1e-3);
}

// An angle errs by 2^-24 of itself, and a unit vector moves by as much; then float32's own rounding.
TEST(Rotation, AtAMillionTokensAndBeyondErrsByTheAnglesRoundingAlone) {
  const auto f = frequencies(64);
  const Tensor x = Tensor::full({1, 64}, 1, DType::f64);
  for (const std::int64_t position : {1000000LL, 16777217LL, 1000000000LL, 1LL << 40}) {
    const Tensor y = rotary(x, rotary_table(f, 1, position));
    const auto at = static_cast<double>(static_cast<float>(position));
    for (std::int64_t p = 0; p < 32; ++p) {
      const double exact = at * static_cast<double>(f.inv_freq[static_cast<std::size_t>(p)]);
      EXPECT_NEAR(y.at({0, p}), std::cos(exact) - std::sin(exact), 0x1p-24 * exact * 1.5 + 0x1p-22)
          << position << " " << p;
    }
  }
  EXPECT_NO_THROW(rotary_table(f, 1, std::numeric_limits<std::int64_t>::max() - 1));
}

TEST(Rotation, HasTheSameBitsForAnyThreadsAndBatch) {
  std::mt19937 rng(3);
  const auto table = rotary_table(frequencies(64), 300);
  const Tensor x = uniform(rng, {3, 4, 300, 80}, DType::f32);
  const Tensor one = with_threads(1, [&] { return rotary(x, table); });
  for (const int threads : {2, 3, 7}) {
    EXPECT_TRUE(identical(with_threads(threads, [&] { return rotary(x, table); }), one));
    EXPECT_TRUE(identical(with_threads(threads, [&] { return rotary_table(frequencies(64), 300).sin; }), table.sin));
  }
  EXPECT_TRUE(identical(rotary(x.slice(0, 1, 2), table), one.slice(0, 1, 2)));
  const RotaryTable part{table.cos.slice(0, 250, 260), table.sin.slice(0, 250, 260)};
  EXPECT_TRUE(identical(rotary(x.slice(2, 250, 260), part), one.slice(2, 250, 260)));
}

TEST(Rotation, FiniteStaysFinite) {
  const auto table = rotary_table(frequencies(2), 2);  // angles 0 and 1: cos + sin is 1.38
  for (const auto& [dtype, most] : std::vector<std::pair<DType, double>>{
           {DType::f32, std::numeric_limits<float>::max()}, {DType::f16, 65504}, {DType::bf16, 0x1.fep127}}) {
    const Tensor y = rotary(Tensor::full({2, 2}, most, dtype), table);
    EXPECT_EQ(y.at({1, 1}), most) << name(dtype);
    EXPECT_EQ(y.at({0, 1}), most) << name(dtype);
    EXPECT_NEAR(y.at({1, 0}) / most, std::cos(1) - std::sin(1), 4 * epsilon(dtype)) << name(dtype);
    EXPECT_EQ(rotary(Tensor::full({2, 2}, kInf, dtype), table).at({1, 1}), kInf);
    EXPECT_TRUE(std::isnan(rotary(Tensor::full({2, 2}, kNan, dtype), table).at({1, 1})));
  }
}

TEST(Rotation, KeepsTheOrderOfDimensionsInMemory) {
  const Tensor x = Tensor::ones({2, 5, 3, 8}).transpose(1, 2);  // tokens before heads
  EXPECT_EQ(rotary(x, rotary_table(frequencies(8), 5)).strides(), x.strides());
  EXPECT_TRUE(rotary(Tensor::ones({2, 3, 5, 8}), rotary_table(frequencies(8), 5)).is_contiguous());
}

TEST(Rotation, OfNothingIsNothing) {
  EXPECT_EQ(rotary(Tensor::ones({2, 0, 8}), rotary_table(frequencies(8), 0)).shape(), (Shape{2, 0, 8}));
  EXPECT_EQ(rotary(Tensor::ones({0, 3, 8}), rotary_table(frequencies(8), 3)).shape(), (Shape{0, 3, 8}));
}

TEST(Rotation, RefusesWhatDoesNotFit) {
  const auto f = frequencies(8);
  const auto table = rotary_table(f, 3);
  expect_error(Kind::shape, {"[rotary] expected x (…, 3, d)"}, [&] { rotary(Tensor::ones({4, 8}), table); });
  expect_error(Kind::shape, {"expected x (…, 3, d)"}, [&] { rotary(Tensor::ones({8}), table); });
  expect_error(Kind::shape, {"at least rotary_dim = 8; found (3, 6)"}, [&] { rotary(Tensor::ones({3, 6}), table); });
  expect_error(Kind::dtype, {"found int64"}, [&] { rotary(Tensor::ones({3, 8}, DType::i64), table); });
  expect_error(Kind::argument, {"undefined"}, [&] { rotary({}, table); });
  expect_error(Kind::dtype, {"float64"}, [&] { rotary(Tensor::ones({3, 8}), {table.cos, table.sin.to(DType::f64)}); });
  expect_error(Kind::shape, {"one shape"}, [&] {
    rotary(Tensor::ones({3, 8}), {table.cos, table.sin.slice(1, 0, 3)});
  });
  const RotaryTable of_two = rotary_table(f, Tensor::zeros({2, 3}, DType::i64));
  expect_error(Kind::shape, {"x (2, …, 3, d)"}, [&] { rotary(Tensor::ones({3, 3, 8}), of_two); });
  expect_error(Kind::shape, {"x (2, …, 3, d)"}, [&] { rotary(Tensor::ones({3, 8}), of_two); });
  expect_error(Kind::argument, {"lie apart"}, [&] { rotary_in_place(Tensor::ones({1, 8}).expand({3, 8}), table); });
  const Tensor memory = Tensor::ones({64});
  for (const std::int64_t step : {1, 4, 7, -7}) {
    const Tensor x = Tensor::from_blob(memory.data<float>() + 32, {3, 8}, {step, 1}, DType::f32);
    expect_error(Kind::argument, {"lie apart"}, [&] { rotary_in_place(x, table); });
  }
  for (const std::int64_t step : {8, -8, 9})
    rotary_in_place(Tensor::from_blob(memory.data<float>() + 32, {3, 8}, {step, 1}, DType::f32), table);

  expect_error(Kind::argument, {"positions of at least 0; found -1"}, [&] { rotary_table(f, integers({0, -1})); });
  expect_error(Kind::dtype, {"positions of int64; found int32"},
               [&] { rotary_table(f, Tensor::zeros({2}, DType::i32)); });
  expect_error(Kind::shape, {"(t) or (b, t)"}, [&] { rotary_table(f, Tensor::zeros({1, 1, 2}, DType::i64)); });
  expect_error(Kind::argument, {"found 3 from -1 on"}, [&] { rotary_table(f, 3, -1); });
  expect_error(Kind::argument, {"2^63"}, [&] { rotary_table(f, 3, std::numeric_limits<std::int64_t>::max() - 1); });
  expect_error(Kind::argument, {"a frequency for each pair"}, [&] { rotary_table(RotaryFrequencies{}, 3); });
  expect_error(Kind::argument, {"finite frequencies"}, [&] { rotary_table({{1.0F, NAN}}, 3); });
  expect_error(Kind::argument, {"angles in float32's range"},
               [&] { rotary_table({{1e30F}}, 1, std::int64_t{1} << 62); });
  expect_error(Kind::argument, {"finite attention_factor"}, [&] { rotary_table({{1.0F}, kInf}, 3); });
  expect_error(Kind::argument, {"below the table's 3; found 3"}, [&] { rotary_rows(table, integers({0, 3})); });
  expect_error(Kind::argument, {"found -1"}, [&] { rotary_rows(table, integers({-1})); });
}

}  // namespace
}  // namespace attn::test
