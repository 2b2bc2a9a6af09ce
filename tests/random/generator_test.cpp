#include <locale>

#include "../../src/random/mcg31.hpp"
#include "attn/random.hpp"
#include "attn/reference.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

TEST(Generator, FirstOutputsOfMt19937) {
  // Matsumoto and Nishimura's reference program with seed 5489; the 10000th is in the C++ standard.
  Generator rng(5489);
  for (const std::uint32_t expected : {3499211612u, 581869302u, 3890346734u, 3586334585u, 545404204u}) {
    EXPECT_EQ(rng.next_u32(), expected);
  }
  for (int i = 6; i < 10000; ++i) rng.next_u32();
  EXPECT_EQ(rng.next_u32(), 4123659995u);
}

TEST(Generator, SeedsWithItsLow32Bits) {
  Generator a(5489), b((std::uint64_t{7} << 32) | 5489);
  EXPECT_EQ(a.next_u32(), b.next_u32());
}

TEST(Generator, U64IsHighWordFirst) {
  Generator rng(5489);
  EXPECT_EQ(rng.next_u64(), (std::uint64_t{3499211612u} << 32) | 581869302u);
}

TEST(Generator, CopiesShareOneStream) {
  Generator a(1), b = a, fresh(1);
  const auto first = fresh.next_u32(), second = fresh.next_u32();
  EXPECT_EQ(a.next_u32(), first);
  EXPECT_EQ(b.next_u32(), second);
  b.manual_seed(1);
  EXPECT_EQ(a.next_u32(), first);
}

TEST(Generator, RandTakesTheLow24BitsOfEachWord) {
  Generator rng(42), words(42);
  const Tensor x = rng.rand({3, 5});
  for (const double found : values(x)) {
    const double expected = std::ldexp(words.next_u32() & 0xffffff, -24);
    EXPECT_EQ(found, expected);
  }
}

TEST(Generator, QueryTwoOfTheSixWords) {
  Generator rng(123);
  const Tensor w_query = rng.rand({3, 2});
  const auto q = values(reference::matmul(Tensor::of({{0.55f, 0.87f, 0.66f}}), w_query));
  EXPECT_NEAR(q[0], 0.4306, 5e-5);
  EXPECT_NEAR(q[1], 1.4551, 5e-5);
}

TEST(Generator, UniformStaysInItsRange) {
  Generator rng(3);
  double least = 9, most = -9;
  for (const double x : values(rng.uniform({10000}, -0.5, 0.25)))
    least = std::fmin(least, x), most = std::fmax(most, x);
  EXPECT_GE(least, -0.5);
  EXPECT_LT(least, -0.499);
  EXPECT_LE(most, 0.25);
  EXPECT_GT(most, 0.249);
  EXPECT_EQ(values(rng.uniform({2}, 3, 3)), (std::vector<double>{3, 3}));
  expect_error(Kind::argument, {"low <= high"}, [&] { rng.uniform({1}, 1, 0); });
  EXPECT_THROW(rng.uniform({1}, kNan, 1), Error);
  EXPECT_THROW(rng.uniform({1}, 0, kInf), Error);
}

// ---- randn: below sixteen elements one at a time, from sixteen on by blocks --------------------

// The rule of the small case, written out: pairs of doubles, the second kept.
double small_normal(Generator& words, bool second) {
  const auto unit = [&] {
    return std::ldexp(static_cast<double>(words.next_u64() & ((std::uint64_t{1} << 53) - 1)), -53);
  };
  const double u1 = unit(), u2 = unit(), r = std::sqrt(-2 * std::log1p(-u2)), t = 2 * M_PI * u1;
  return second ? r * std::sin(t) : r * std::cos(t);
}

TEST(Randn, SmallKeepsTheSecondOfAPairAcrossCalls) {
  Generator whole(9), pieces(9), words(9), again(9);
  const auto x = values(whole.randn({4}));
  EXPECT_EQ(values(pieces.randn({1}))[0], x[0]);
  EXPECT_EQ(values(pieces.randn({2})), (std::vector<double>{x[1], x[2]}));
  EXPECT_EQ(values(pieces.randn({1}))[0], x[3]);
  EXPECT_EQ(static_cast<float>(small_normal(words, false)), static_cast<float>(x[0]));
  EXPECT_EQ(static_cast<float>(small_normal(again, true)), static_cast<float>(x[1]));
}

TEST(Randn, TheKeptValueSurvivesOtherDrawsButNotReseeding) {
  Generator rng(9), plain(9);
  const auto x = values(plain.randn({2}));
  EXPECT_EQ(values(rng.randn({1}))[0], x[0]);
  rng.rand({5});
  rng.randn({16});
  EXPECT_EQ(values(rng.randn({1}))[0], x[1]);
  rng.randn({1});
  rng.manual_seed(9);
  EXPECT_EQ(values(rng.randn({1}))[0], x[0]);
}

// The rule of the large case on sixteen uniforms.
std::vector<double> normals_of(const std::vector<double>& u) {
  std::vector<double> out(16);
  for (std::size_t j = 0; j < 8; ++j) {
    const double r = std::sqrt(-2 * std::log(1 - u[j])), t = 2 * M_PI * u[j + 8];
    out[j] = r * std::cos(t), out[j + 8] = r * std::sin(t);
  }
  return out;
}

TEST(Randn, LargeTransformsBlocksAndDrawsTheLastSixteenAnew) {
  for (const std::int64_t n : {16, 17, 31, 32, 37, 100}) {
    Generator rng(5), uniforms(5);
    const auto found = values(rng.randn({n}));
    auto expected = values(uniforms.rand({n}));
    for (std::size_t i = 0; i + 16 <= expected.size(); i += 16) {
      const auto block =
          normals_of({expected.begin() + static_cast<long>(i), expected.begin() + static_cast<long>(i) + 16});
      std::copy(block.begin(), block.end(), expected.begin() + static_cast<long>(i));
    }
    if (n % 16 != 0) {
      const auto tail = normals_of(values(uniforms.rand({16})));
      std::copy(tail.begin(), tail.end(), expected.end() - 16);
    }
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 3e-6) << n << " " << i;
    EXPECT_EQ(rng.next_u32(), uniforms.next_u32()) << "as many words drawn, n = " << n;
  }
}

TEST(Randn, IsNormal) {
  Generator rng(17);
  double sum = 0, squares = 0;
  for (const double x : values(rng.randn({100000}))) sum += x, squares += x * x;
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(Randint, IsTheWordModuloTheRange) {
  Generator rng(42), words(42);
  const Tensor x = rng.randint(-3, 7, {100});
  EXPECT_EQ(x.dtype(), DType::i64);
  for (const double found : values(x)) EXPECT_EQ(found, static_cast<double>(words.next_u32() % 10) - 3);
  Generator wide(42), wide_words(42);
  const Tensor y = wide.randint(INT64_MIN, INT64_MAX, {3});
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::uint64_t expected = (std::uint64_t{1} << 63) + wide_words.next_u64() % UINT64_MAX;
    EXPECT_EQ(y.data<std::int64_t>()[i], static_cast<std::int64_t>(expected));
  }
  // A range takes two words from 2^28 on, as in PyTorch 2.15: torch.manual_seed(5); torch.randint(low, high, (3,)).
  struct Drawn {
    std::int64_t low, high;
    std::vector<double> expected;
  };
  for (const auto& [low, high, expected] :
       {Drawn{0, (1 << 28) - 1, {148147046, 236996814, 250105852}}, Drawn{0, 1 << 28, {236996814, 80864957, 220060790}},
        Drawn{-(1 << 30), 1 << 30, {-836745010, 349300413, 488496246}},
        Drawn{0, (std::int64_t{1} << 32) - 1, {1190450225, 3015325357, 2450090076}},
        Drawn{0, std::int64_t{1} << 32, {236996814, 3570525885, 1562238070}}}) {
    EXPECT_EQ(values(Generator(5).randint(low, high, {3})), expected) << low << ' ' << high;
  }
  expect_error(Kind::argument, {"low < high", "4 and 4"}, [&] { rng.randint(4, 4, {1}); });
}

// ---- dropout ------------------------------------------------------------------------------------

TEST(Dropout, SureOutcomesDrawNothing) {
  for (const auto flavour : {DropoutFlavour::native, DropoutFlavour::mkl}) {
    Generator rng(1, flavour), fresh(1);
    EXPECT_EQ(values(rng.dropout_keep({3}, 0)), (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(values(rng.dropout_keep({3}, 1)), (std::vector<double>{0, 0, 0}));
    EXPECT_EQ(rng.dropout_keep({0}, 0.5).numel(), 0);
    EXPECT_EQ(rng.next_u32(), fresh.next_u32());
  }
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  Generator rng(1);
  for (const double p : {-0.1, 1.1, kNan, kInf}) {
    expect_error(Kind::argument, {"probability in [0, 1]"}, [&] { rng.dropout_keep({1}, p); });
  }
}

TEST(Dropout, NativeComparesDoublesOfTheStream) {
  Generator rng(123, DropoutFlavour::native), words(123);
  for (const double kept : values(rng.dropout_keep({50}, 0.3))) {
    const double u = std::ldexp(static_cast<double>(words.next_u64() & ((std::uint64_t{1} << 53) - 1)), -53);
    EXPECT_EQ(kept != 0, u < 0.7);
  }
}

TEST(Dropout, MklTakesOneWordAsTheSeedOfItsOwnStream) {
  Generator rng(123, DropoutFlavour::mkl), words(123);
  const auto kept = values(rng.dropout_keep({50}, 0.3));
  std::uint64_t x = words.next_u32() % 2147483647;
  for (const double k : kept) {
    EXPECT_EQ(k != 0, static_cast<double>(x) / 2147483647 < 0.7);
    x = x * 1132489760 % 2147483647;
  }
  EXPECT_EQ(rng.next_u32(), words.next_u32());
}

TEST(Dropout, KeepsTheAskedShare) {
  for (const auto flavour : {DropoutFlavour::native, DropoutFlavour::mkl}) {
    Generator rng(7, flavour);
    double kept = 0;
    for (const double k : values(rng.dropout_keep({100000}, 0.2))) kept += k;
    EXPECT_NEAR(kept / 1e5, 0.8, 0.01);
  }
}

TEST(Dropout, FlavoursByName) {
  EXPECT_EQ(dropout_flavour("mkl"), DropoutFlavour::mkl);
  EXPECT_EQ(dropout_flavour("native"), DropoutFlavour::native);
  EXPECT_EQ(name(DropoutFlavour::mkl), "mkl");
  EXPECT_EQ(name(DropoutFlavour::native), "native");
  EXPECT_EQ(Generator(1, DropoutFlavour::native).flavour(), DropoutFlavour::native);
  expect_error(Kind::argument, {"mkl", "native", "cuda"}, [] { dropout_flavour("cuda"); });
}

TEST(Mcg31, SkippingEqualsStepping) {
  for (const std::uint32_t seed : {0u, 1u, 2147483647u, 123456789u, 4294967295u}) {
    for (const std::uint64_t n : {0u, 1u, 2u, 3u, 7u, 64u, 1000u}) {
      Mcg31 steps(seed), skips(seed);
      for (std::uint64_t i = 0; i < n; ++i) steps.next();
      skips.skip(n);
      EXPECT_EQ(steps.next(), skips.next()) << seed << " " << n;
    }
  }
  Mcg31 zero(2147483647);  // a multiple of the modulus would stay 0 for ever
  EXPECT_EQ(zero.next(), 1.0 / 2147483647);
}

TEST(Generator, AStateContinuesTheStream) {
  for (const int drawn : {0, 1, 5, 700}) {
    Generator rng(7), other(1);
    for (int i = 0; i < drawn; ++i) rng.next_u32();
    rng.randn({3});  // leaves one of a pair
    const Tensor state = rng.state();
    const Tensor normals = rng.randn({5});
    const std::uint64_t next = rng.next_u64();
    other.set_state(state);
    const Tensor again = other.randn({5});
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(again.at({i}), normals.at({i}));
    EXPECT_EQ(other.next_u64(), next);
  }
  Generator fresh(7), used(1);
  used.randn({3});
  used.set_state(fresh.state());
  EXPECT_EQ(used.randn({1}).at({0}), fresh.randn({1}).at({0})) << "the one that was left of a pair is forgotten";
  Generator rng(1), same(1);
  EXPECT_THROW(rng.set_state({}), Error);
  EXPECT_THROW(rng.set_state(Tensor::zeros({3}, DType::i64)), Error);
  EXPECT_THROW(rng.set_state(Tensor::full(rng.state().shape(), -1, DType::i64)), Error);
  Tensor wide = rng.state();
  wide.data<std::int64_t>()[5] = std::int64_t{1} << 32;
  EXPECT_THROW(rng.set_state(wide), Error) << "a word past 32 bits";
  EXPECT_EQ(rng.next_u32(), same.next_u32()) << "a refused state changes nothing";
}

// Digits by groups of three, with a blank between them, as in French.
struct Blanks : std::numpunct<char> {
  char do_thousands_sep() const override { return ' '; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Generator, AStateDoesNotDependOnTheLocale) {
  Generator rng(7), other(1);
  const Tensor expected = rng.state();
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Blanks));
  const Tensor state = rng.state();
  other.set_state(expected);
  std::locale::global(before);
  EXPECT_EQ(values(state), values(expected));
  EXPECT_EQ(other.next_u32(), rng.next_u32());
}

TEST(Generator, SmallNumbersOutsideARangeAreToldAsTheyAre) {
  expect_error(Kind::argument, {"found -1e-09"}, [] { Generator(1).dropout_keep({2}, -1e-9); });
  expect_error(Kind::argument, {"found 3e+38 and 1.5"}, [] { Generator(1).uniform({2}, 3e38, 1.5); });
}

}  // namespace
}  // namespace attn::test
