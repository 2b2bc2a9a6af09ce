// The fused gradient against the reference in float64, for every instruction set of this processor.
#include "kernels/backward_runs.hpp"

namespace attn {
namespace {

class Backward : public BackwardUnits {
 protected:
  void expect_agreement(const Case& c) const {
    const bool rounds = has_matrix() && c.precision == kernels::Precision::medium;
    expect_close(backward(kernels_, c, forward(kernels_, c)), reference(c, rounds), c, has_matrix());
  }

  void expect_agreement(std::uint64_t first_seed, unsigned count, Case (*draw)(Random&)) const {
    for (std::uint64_t seed = first_seed; seed < first_seed + test::seeds(count); ++seed) {
      Random random(seed);
      const Case c = draw(random);
      SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
      expect_agreement(c);
      if (HasFailure()) break;
    }
  }
};
// Tests of the units whose float32 is products of parts.
using BackwardInParts = Backward;

const auto name_of = [](const auto& unit) { return unit.param; };
INSTANTIATE_TEST_SUITE_P(Kernels, Backward, testing::ValuesIn(kernels::unit_names()), name_of);
INSTANTIATE_TEST_SUITE_P(Kernels, BackwardInParts, testing::ValuesIn(kernels::unit_names(3)), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackwardInParts);  // Arm has none

TEST_P(Backward, AgreesWithTheReference) { expect_agreement(1, 40, draw_case); }

TEST_P(Backward, AgreesWithTheReferenceInParts) { expect_agreement(301, 16, draw_large); }

double relative_error(const Tensor& got, const Tensor& want) {
  const Tensor a = got.to(DType::f64).contiguous(), b = want.to(DType::f64).contiguous();
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double difference = a.data<double>()[i] - b.data<double>()[i];
    error += difference * difference, norm += b.data<double>()[i] * b.data<double>()[i];
  }
  return std::sqrt(error / norm);
}

// Roundings to bf16 fall both ways: on the whole those of weights and score gradients leave less than an epsilon, and
// those of medium precision's operands another.
TEST_P(Backward, SlowBf16LeavesAnEpsilonOnTheWhole) {
  for (const bool medium : {false, true}) {
    for (const bool masked : {false, true}) {
      Random random(11);
      Case c{};
      c.b = 1, c.hq = 2, c.hkv = 1, c.tq = 70, c.tk = 330, c.d = 64, c.dv = 80;
      draw_tensors(random, c, medium ? DType::f32 : DType::bf16);
      if (medium) c.precision = kernels::Precision::medium;
      for (std::int32_t i = 0; i < c.tq; ++i) {
        c.first.push_back(masked && i > 40 ? i - 40 : 0), c.last.push_back(masked ? i + 200 : 330);
      }
      if (masked) c.dropout = 0.25, c.dropout_keep = booleans(random, c.scores(), 0.75);
      const AttentionGradient got = backward(kernels_, c, forward(kernels_, c)), want = reference(c, false);
      const double most = medium ? 0x2p-8 : 0x1p-8;
      SCOPED_TRACE(c.str());
      EXPECT_LE(relative_error(got.q, want.q), most);
      EXPECT_LE(relative_error(got.k, want.k), most);
      EXPECT_LE(relative_error(got.v, want.v), most);
    }
  }
}

// Numbers of one sign, so that sums grow, or of both; a causal mask, or none.
Case plain_case(std::uint64_t seed, std::int64_t tq, std::int64_t tk, std::int64_t d, bool causal) {
  Random random(seed);
  Case c{};
  c.b = 1, c.hq = c.hkv = 1, c.tq = tq, c.tk = tk, c.d = c.dv = d;
  draw_tensors(random, c, DType::f32);
  if (seed % 2 == 0) {
    for (Tensor* t : {&c.v, &c.d_output}) {
      const Tensor positive = t->clone();
      for (std::int64_t i = 0; i < positive.numel(); ++i)
        positive.data<float>()[i] = std::fabs(positive.data<float>()[i]);
      *t = positive;
    }
  }
  for (std::int64_t i = 0; i < tq; ++i) {
    c.first.push_back(0), c.last.push_back(static_cast<std::int32_t>(causal ? i + 1 : tk));
  }
  return c;
}

// Three parts hold a float32 number, and their sums are rounded less often than a chain of multiply-adds. Each after
// its own forward pass, whose scores are off by as much. The largest error is one number's, and chance.
TEST_P(BackwardInParts, SlowErrorsAtHighestAreNoLargerThanMultiplyAdds) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Case c = plain_case(seed, 256, seed % 3 == 0 ? 512 : 256, seed % 4 < 2 ? 64 : 128, seed % 3 == 1);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
    const AttentionGradient got = backward(kernels_, c, forward(kernels_, c));
    const AttentionGradient other = backward(multiply_adds(), c, forward(multiply_adds(), c)),
                            want = reference(c, false);
    const auto check = [](const char* what, const Tensor& a, const Tensor& b, const Tensor& exact) {
      EXPECT_LE(relative_error(a, exact), relative_error(b, exact)) << what;
      EXPECT_LE(distance(a, exact), 1.3 * distance(b, exact)) << what;
    };
    check("dq", got.q, other.q, want.q), check("dk", got.k, other.k, want.k), check("dv", got.v, other.v, want.v);
  }
}

// Values and gradients of one sign (even seeds) make the scores' gradients small differences.
TEST_P(Backward, SlowHighKeepsSixteenBitsOnTheWhole) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Case c = plain_case(seed, 256, 300, seed < 3 ? 64 : 128, false);
    c.precision = kernels::Precision::high;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
    const AttentionGradient got = backward(kernels_, c, forward(kernels_, c)), want = reference(c, false);
    const double most = seed % 2 == 0 ? 1e-4 : 0x1p-16;
    EXPECT_LE(relative_error(got.q, want.q), most);
    EXPECT_LE(relative_error(got.k, want.k), most);
    EXPECT_LE(relative_error(got.v, want.v), 0x1p-16);
  }
}

// The heads are so wide that a task's keys no longer fit the cache, and pass in steps.
TEST_P(Backward, AgreesForWideHeads) {
  Random random(2);
  Case c{};
  c.b = 1, c.hq = 2, c.hkv = 1, c.tq = 20, c.tk = 400, c.d = 600, c.dv = 500;
  draw_tensors(random, c, DType::bf16);
  c.first.assign(20, 0), c.last.assign(20, 400);
  c.last[4] = 90;
  expect_agreement(c);
}

// Several spans of queries, the last of them short, by several tiles of keys.
TEST_P(Backward, AgreesForManyQueries) {
  Random random(5);
  Case c{};
  c.b = 1, c.hq = 4, c.hkv = 1, c.tq = 150, c.tk = 330, c.d = 72, c.dv = 40;
  draw_tensors(random, c, DType::bf16);
  for (std::int32_t i = 0; i < c.tq; ++i) c.first.push_back(0), c.last.push_back(i + 181);
  expect_agreement(c);
}

// Every way to broadcast a bias, at sizes where tasks share out its queries, and where they share out its keys.
// Each head belongs to one task, whatever its keys; on AMX these take turns in L2. The results are so large that they
// are written past the caches.
TEST_P(Backward, AgreesForManyHeads) {
  if (left_to_nightly()) return;
  Random random(19);
  Case c{};
  c.b = 1, c.hq = c.hkv = 17, c.tq = 130, c.tk = 970, c.d = c.dv = 64;
  draw_tensors(random, c, DType::f32);
  for (std::int64_t i = 0; i < c.tq; ++i) {
    c.first.push_back(static_cast<std::int32_t>(2 * i));
    c.last.push_back(static_cast<std::int32_t>(c.tk - 3 * i));
  }
  expect_agreement(c);
}

TEST_P(Backward, BiasGradientForEveryBroadcast) {
  for (unsigned draws = 0; draws < 32; ++draws) {
    Random random(5);
    Case c{};
    const bool long_queries = draws >= 16;
    c.b = 2, c.hq = 2, c.hkv = 1, c.tq = long_queries ? 140 : 10, c.tk = long_queries ? 40 : 800, c.d = c.dv = 4;
    draw_tensors(random, c, DType::f32);
    c.first.assign(static_cast<std::size_t>(c.tq), 0);
    c.last.assign(static_cast<std::size_t>(c.tq), static_cast<std::int32_t>(c.tk));
    Shape shape = c.scores();
    for (std::size_t dim = 0; dim < 4; ++dim) {
      if (draws >> dim & 1) shape[dim] = 1;
    }
    c.bias = normal(random, shape, DType::f32).clone();
    SCOPED_TRACE(c.str());
    expect_agreement(c);
  }
}

}  // namespace
}  // namespace attn
