// The forward on bf16 matrix instructions: against float64, and bit for bit against itself in other company. Where
// a processor has no AMX, the AMX kernel runs on emulated tiles: its logic is tested everywhere, its speed nowhere
// but there.
#include <gtest/gtest.h>

#include <string>

#include "core/testing.hpp"
#include "kernels/matrix_case.hpp"
#include "kernels/units.hpp"

namespace attn::kernels {
namespace {

// Rounding errors: of a product's numbers (half an ulp of what the parts keep), of a weight, of the output.
void expect_close(const Case& c, const Result& result) {
  const Problem& p = c.p;
  const bool high = p.element == Element::f32 && p.precision == Precision::high;
  const double kFloat = std::ldexp(1, -24), kBf16 = std::ldexp(1, -8), kHigh = std::ldexp(1, -16);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.hq; ++h) {
      for (std::int64_t i = 0; i < p.tq; ++i) {
        const Row row = reference_row(c, b, h, i);
        const auto at = static_cast<std::size_t>((b * p.hq + h) * p.tq + i);
        if (std::isinf(row.lse)) {
          ASSERT_EQ(result.lse[at], -std::numeric_limits<float>::infinity());
        } else {
          // A score's error; 8 and 16 for the scores' and the softmax's own arithmetic in float32.
          const double in_score = row.terms * (high ? 3 * kHigh : 8 * kFloat) + 16 * kFloat * (1 + std::abs(row.lse));
          const bool highest = p.element == Element::f32 && p.precision == Precision::highest;
          const double in_sum = highest || high ? 0 : std::ldexp(1, -18);  // exponentials for weights in bf16
          ASSERT_NEAR(static_cast<double>(result.lse[at]), row.lse, in_score + in_sum + 16 * kFloat) << b << h << i;
          const double in_weight = 2 * in_score + (highest ? 0 : high ? 3 * kHigh : kBf16) + 16 * kFloat;
          for (std::int64_t d = 0; d < p.dv; ++d) {
            const auto e = static_cast<std::size_t>(d);
            const double out = row.output[e], in_output = p.element == Element::bf16 ? kBf16 * std::abs(out) : 0;
            ASSERT_NEAR(static_cast<double>(result.output[at * static_cast<std::size_t>(p.dv) + e]), out,
                        in_weight * row.magnitude[e] + in_output * 1.01 + 1e-30)
                << "b " << b << " h " << h << " i " << i << " d " << d;
          }
          continue;
        }
        for (std::int64_t d = 0; d < p.dv; ++d) {
          ASSERT_EQ(result.output[at * static_cast<std::size_t>(p.dv) + static_cast<std::size_t>(d)], 0);
        }
      }
    }
  }
}

std::string words(const Problem& p) {
  std::string text;
  const std::pair<const char*, std::int64_t> sizes[] = {{"b", p.batch}, {"hq", p.hq}, {"hkv", p.hkv}, {"tq", p.tq},
                                                        {"tk", p.tk},   {"d", p.d},   {"dv", p.dv}};
  for (const auto& [name, size] : sizes) text += std::string(name) + " " + std::to_string(size) + ", ";
  return text + "scale " + std::to_string(p.scale) + (p.softcap > 0 ? ", softcap" : "") +
         (p.keep.data ? ", keep" : "") + (p.bias.data ? ", bias" : "") + (p.dropout.keep.data ? ", dropout" : "");
}

struct Kind {
  const char* name;
  Element element;
  Precision precision;
};
constexpr Kind kKinds[] = {{"float32", Element::f32, Precision::highest},  // where it is small AVX-512's, kept
                           {"bf16", Element::bf16, Precision::highest},
                           {"medium", Element::f32, Precision::medium},
                           {"high", Element::f32, Precision::high}};

class Matrix : public Units {
 protected:
  bool takes(const Kind& kind) const {
    return kind.precision != Precision::high || kernels_.bf16_forward->most_parts > 1;
  }
};

// Tests of the units whose float32 is products of parts. The others' is AVX-512's, which would be compared with itself.
using MatrixInParts = Matrix;

const auto name_of = [](const auto& unit) { return unit.param; };
INSTANTIATE_TEST_SUITE_P(Kernels, Matrix, testing::ValuesIn(unit_names(1)), name_of);
INSTANTIATE_TEST_SUITE_P(Kernels, MatrixInParts, testing::ValuesIn(unit_names(3)), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Matrix);  // Arm has none
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatrixInParts);

TEST_P(Matrix, AgreesWithFloat64) {
  for (const Kind& kind : kKinds) {
    if (!takes(kind)) continue;
    for (unsigned seed = 0; seed < test::seeds(60); ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind.element, kind.precision);
      SCOPED_TRACE(std::string(kind.name) + ", seed " + std::to_string(seed) + ": " + words(c.p));
      expect_close(c, run(kernels_, c.p, random));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Matrix, ResultsDoNotDependOnTheOrderOfTasks) {
  if (left_to_nightly()) return;
  for (const Kind& kind : kKinds) {
    for (unsigned seed = 100; seed < 100 + test::seeds(20); ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind.element, kind.precision);
      EXPECT_EQ(run(kernels_, c.p, random), run(kernels_, c.p, random)) << kind.name << ", seed " << seed;
    }
  }
}

// Any one query of any one batch item and head, computed alone: the same bits. Float32 at highest precision, where
// tiles take it from so many queries on, in the company of that query itself.
TEST_P(Matrix, ARowDoesNotDependOnOtherRows) {
  if (left_to_nightly()) return;
  for (const Kind& kind : kKinds) {
    for (unsigned seed = 200; seed < 200 + test::seeds(40); ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind.element, kind.precision);
      const Problem& p = c.p;
      const Result all = run(kernels_, p, random);
      const std::int64_t b = pick(random, 0, p.batch - 1), h = pick(random, 0, p.hq - 1), i = pick(random, 0, p.tq - 1);
      const std::int64_t kv = h / (p.hq / p.hkv), bytes = p.element == Element::f32 ? 4 : 2;
      Problem one = p;
      one.batch = one.hq = one.hkv = 1;
      const bool repeats = plan_tiles(p, kernels_, 1).parts == 3;
      if (!repeats) one.tq = 1;
      const auto move = [&](Rows& rows, std::int64_t head, std::int64_t token) {
        rows.data = static_cast<char*>(rows.data) + (b * rows.batch + head * rows.head + token * rows.token) * bytes;
      };
      move(one.q, h, i), move(one.k, kv, 0), move(one.v, kv, 0);
      if (repeats) one.q.token = 0;
      const auto at_query = static_cast<std::size_t>(i);
      const std::vector<std::int32_t> first(static_cast<std::size_t>(one.tq), c.first[at_query]);
      const std::vector<std::int32_t> last(static_cast<std::size_t>(one.tq), c.last[at_query]);
      one.first = first.data(), one.last = last.data();
      const auto shift = [&](auto& grid) {
        if (grid.data) grid.data += b * grid.batch + h * grid.head + i * grid.query, grid.query = 0;
      };
      shift(one.keep), shift(one.bias), shift(one.dropout.keep);
      const auto at = (b * p.hq + h) * p.tq + i;
      const Result row{{all.output.begin() + at * p.dv, all.output.begin() + (at + 1) * p.dv},
                       {all.lse[static_cast<std::size_t>(at)]}};
      Result alone = run(kernels_, one, random);
      alone.output.resize(static_cast<std::size_t>(p.dv)), alone.lse.resize(1);
      EXPECT_EQ(alone, row) << kind.name << ", seed " << seed << ": " << words(p);
    }
  }
}

// tq queries and tk keys of d, all seen.
Case plain_case(Random& random, Precision precision, std::int64_t tq, std::int64_t tk, std::int64_t d) {
  Case c;
  Problem& p = c.p;
  p = {1, 1, 1, tq, tk, d, d, Element::f32};
  c.q = std::make_unique<Operand>(random, p.element, 1, 1, tq, d), p.q = c.q->rows;
  c.k = std::make_unique<Operand>(random, p.element, 1, 1, tk, d), p.k = c.k->rows;
  c.v = std::make_unique<Operand>(random, p.element, 1, 1, tk, d), p.v = c.v->rows;
  p.scale = 1 / std::sqrt(static_cast<float>(d)), p.dropout.factor = 1, p.precision = precision;
  c.first.assign(static_cast<std::size_t>(tq), 0), c.last.assign(c.first.size(), static_cast<std::int32_t>(tk));
  p.first = c.first.data(), p.last = c.last.data();
  return c;
}

// Errors of all outputs against float64: the root of the mean square, and the largest. `norm` is the root of the mean
// square of the outputs themselves, and `lse` that of the log-sum-exps' errors.
struct Errors {
  double rms, most, norm, lse;
};

Errors errors_of(const Case& c, const Result& result) {
  const Problem& p = c.p;
  Errors e{};
  for (std::int64_t i = 0; i < p.tq; ++i) {
    const Row row = reference_row(c, 0, 0, i);
    const double lse = static_cast<double>(result.lse[static_cast<std::size_t>(i)]) - row.lse;
    e.lse += lse * lse;
    for (std::int64_t d = 0; d < p.dv; ++d) {
      const double want = row.output[static_cast<std::size_t>(d)];
      const double error = static_cast<double>(result.output[static_cast<std::size_t>(i * p.dv + d)]) - want;
      e.rms += error * error, e.norm += want * want, e.most = std::max(e.most, std::abs(error));
    }
  }
  const auto n = static_cast<double>(p.tq * p.dv);
  return {std::sqrt(e.rms / n), e.most, std::sqrt(e.norm / n), std::sqrt(e.lse / static_cast<double>(p.tq))};
}

TEST_P(MatrixInParts, HighPrecisionIsWithin4eMinus5OfFloat64) {
  for (std::int64_t d : {64, 128}) {
    Random random(static_cast<unsigned>(d));
    const Case c = plain_case(random, Precision::high, 100, 500, d);
    const Errors e = errors_of(c, run(kernels_, c.p, random));
    EXPECT_LE(e.rms / e.norm, 4e-5) << "d " << d;
  }
}

// The errors against float64 are no larger than those of float32's own multiply-adds, for scores of the usual size and
// of 8 times that.
TEST_P(MatrixInParts, SlowHighestPrecisionIsAsExactAsAvx512s) {
  for (std::int64_t d : {32, 64, 128}) {
    for (float scale : {1.f, 8.f}) {
      Random random(static_cast<unsigned>(d));
      Case c = plain_case(random, Precision::highest, 150, 700, d);
      c.p.scale *= scale;
      const Errors e = errors_of(c, run(kernels_, c.p, random)),
                   avx512 = errors_of(c, run(multiply_adds(), c.p, random));
      EXPECT_LE(e.rms, avx512.rms * 1.02) << "d " << d << " scale " << scale;
      EXPECT_LE(e.most, avx512.most * 1.1) << "d " << d << " scale " << scale;
      EXPECT_LE(e.lse, avx512.lse * 1.1 + std::ldexp(1, -25)) << "d " << d << " scale " << scale;  // its last rounding
    }
  }
}

// A row or its log-sum-exp shows that it is not finite.
bool is_finite(const Result& result, std::size_t row, std::int64_t width) {
  const auto* first = result.output.data() + row * static_cast<std::size_t>(width);
  return std::isfinite(result.lse[row]) && std::all_of(first, first + width, [](float x) { return std::isfinite(x); });
}

// Infinities, NaN and the largest numbers in one place of q, k or v: a row is as AVX-512's, or shows that it is not
// finite, and is computed again; and so wherever AVX-512's is not.
TEST_P(MatrixInParts, ShowsWhatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  for (float x : {inf, -inf, std::nanf(""), most, -most, 1e-40f}) {
    for (int where = 0; where < 3; ++where) {
      Random random(7);
      Case c = plain_case(random, Precision::highest, 130, 300, 64);
      Operand& operand = where == 0 ? *c.q : where == 1 ? *c.k : *c.v;
      operand.floats[static_cast<std::size_t>(20 * operand.rows.token + 3)] = x;
      for (std::size_t i = 0; i < 60; ++i) c.last[i] = 20;  // these do not see key 20
      c.last[20] = 300;
      const Result result = run(kernels_, c.p, random), avx512 = run(multiply_adds(), c.p, random);
      bool finite = true;
      for (std::size_t i = 0; i < c.first.size(); ++i) finite = finite && is_finite(result, i, 64);
      EXPECT_EQ(result.finite, finite) << x << " in " << where;
      for (std::size_t i = 0; i < c.first.size(); ++i) {
        const bool apart = x == 1e-40f || (where == 0 && i != 20) || (where == 1 && i < 60 && i != 20);
        if (!apart && !is_finite(result, i, 64)) continue;
        ASSERT_TRUE(is_finite(result, i, 64)) << x << " in " << where << ", row " << i;
        ASSERT_TRUE(is_finite(avx512, i, 64)) << x << " in " << where << ", row " << i;
        for (std::size_t d = i * 64; d < (i + 1) * 64; ++d) {
          const float want = avx512.output[d];
          ASSERT_NEAR(result.output[d], want, 4e-6f * (1 + std::abs(want))) << x << " in " << where << ", row " << i;
        }
      }
    }
  }
}

// Scores, or sums of values, past float32's range show.
TEST_P(Matrix, ShowsOverflow) {
  for (const Kind& kind : kKinds) {
    Random random(1);
    Case c = tiles_take_large(kind.element, kind.precision) ? plain_case(random, kind.precision, 130, 200, 64)
                                                            : draw_case(random, kind.element, kind.precision);
    Problem& p = c.p;
    std::fill(c.first.begin(), c.first.end(), 0);
    std::fill(c.last.begin(), c.last.end(), static_cast<std::int32_t>(p.tk));
    p.scale = 1, p.softcap = 0, p.keep = {}, p.bias = {}, p.dropout.keep = {}, p.dropout.factor = 1;
    const auto fill = [&](Operand& operand, float x) {
      std::fill(operand.floats.begin(), operand.floats.end(), x);
      std::fill(operand.halves.begin(), operand.halves.end(), bfloat16(x));
    };
    fill(*c.q, 1e30f), fill(*c.k, 1e30f);
    for (float lse : run(kernels_, p, random).lse) EXPECT_FALSE(std::isfinite(lse)) << kind.name;
    fill(*c.q, 1), fill(*c.k, 1), fill(*c.v, 3.3e38f);
    const Result result = run(kernels_, p, random);
    for (std::size_t i = 0; i < result.lse.size(); ++i) {
      const float out = result.output[i * static_cast<std::size_t>(p.dv)];
      EXPECT_TRUE(!std::isfinite(out) || std::abs(out / 3.3e38f - 1) < 0.01f) << kind.name;
    }
  }
}

// A call that is no work for products of parts gets AVX-512's kernel.
TEST_P(Matrix, SmallFloat32AtHighestPrecisionIsAvx512s) {
  const unsigned seeds = test::seeds(20);
  unsigned small = 0;
  for (unsigned seed = 300; seed < 300 + seeds; ++seed) {
    Random random(seed);
    const Case c = draw_case(random, Element::f32, Precision::highest);
    const ForwardPlan plan = plan_tiles(c.p, kernels_, 1);
    if (plan.family == Family::bf16_tiles) continue;
    EXPECT_EQ(plan.kernel, plan_tiles(c.p, multiply_adds(), 1).kernel) << "seed " << seed;
    ++small;
  }
  EXPECT_GT(small * 4, seeds);
}

// A narrow window gets AVX-512's kernel, too. Otherwise large float32 is the tiles', whose bits are others.
TEST_P(MatrixInParts, LargeFloat32AtHighestPrecisionIsTheTiles) {
  Random random(1);
  Case c = plain_case(random, Precision::highest, 150, 700, 64);
  EXPECT_NE(run(kernels_, c.p, random), run(multiply_adds(), c.p, random));
  c.p.window = 255;
  EXPECT_EQ(plan_tiles(c.p, kernels_, 1).kernel, plan_tiles(c.p, multiply_adds(), 1).kernel);
  c.p.window = 256;
  EXPECT_NE(run(kernels_, c.p, random), run(multiply_adds(), c.p, random));
}

}  // namespace
}  // namespace attn::kernels
