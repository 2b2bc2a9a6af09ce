// The fused gradient's bits, and its edges: what overflows, what is masked, what is empty, and its memory.
#include <limits>

#include "kernels/backward_runs.hpp"

namespace attn {
namespace {

using BackwardEdges = BackwardUnits;
INSTANTIATE_TEST_SUITE_P(Kernels, BackwardEdges, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& unit) { return unit.param; });

TEST_P(BackwardEdges, SameBitsInAnyOrderAndForAnyThreads) {
  for (std::uint64_t seed = 101; seed <= 118; ++seed) {
    Random random(seed);
    const Case c = seed <= 112 ? draw_case(random) : draw_large(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
    const Forward f = forward(kernels_, c);
    const AttentionGradient one = backward(kernels_, c, f);
    for (std::size_t threads = 1; threads <= 3; ++threads) {
      expect_same_bits(one, backward(kernels_, c, f, {seed, threads}));
    }
  }
}

// Item b of a case, its masks and bias included.
Case item(const Case& c, std::int64_t b) {
  const auto cut = [&](const Tensor& t) { return !t.defined() || t.size(0) == 1 ? t : t.slice(0, b, b + 1); };
  Case one = c;
  one.b = 1;
  one.q = c.q.slice(0, b, b + 1), one.k = c.k.slice(0, b, b + 1), one.v = c.v.slice(0, b, b + 1);
  one.d_output = c.d_output.slice(0, b, b + 1);
  one.keep = cut(c.keep), one.dropout_keep = cut(c.dropout_keep), one.blocks = cut(c.blocks);
  one.bias = c.bias.defined() ? cut(c.bias) : c.bias;
  return one;
}

TEST_P(BackwardEdges, SameBitsWhateverElseIsInTheBatch) {
  for (std::uint64_t seed = 201; seed <= 218; ++seed) {
    Random random(seed);
    const Case c = seed <= 212 ? draw_case(random) : draw_large(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
    const AttentionGradient all = backward(kernels_, c, forward(kernels_, c));
    for (std::int64_t b = 0; b < c.b; ++b) {
      const Case one = item(c, b);
      const AttentionGradient alone = backward(kernels_, one, forward(kernels_, one));
      EXPECT_TRUE(test::identical(all.q.slice(0, b, b + 1), alone.q)) << "dq";
      EXPECT_TRUE(test::identical(all.k.slice(0, b, b + 1), alone.k)) << "dk";
      EXPECT_TRUE(test::identical(all.v.slice(0, b, b + 1), alone.v)) << "dv";
    }
  }
}

TEST_P(BackwardEdges, SaysWhereAGradientLeavesTheRange) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t tk : {140, 700}) {  // a head's keys are one task's, or more
      Random random(17);
      Case c{};
      c.b = 1, c.hq = 2, c.hkv = 2, c.tq = 130, c.tk = tk, c.d = 40, c.dv = 32;
      draw_tensors(random, c, dtype);
      c.d_output.fill(dtype == DType::f16 ? 60000 : 3e38);
      c.first.assign(130, 0), c.last.assign(130, static_cast<std::int32_t>(tk));
      EXPECT_FALSE(all_finite(backward(kernels_, c, forward(kernels_, c)).v));
    }
  }
}

void scale(const Tensor& t, double factor) {
  const Tensor numbers = t.to(DType::f64).contiguous();
  for (std::int64_t i = 0; i < numbers.numel(); ++i) numbers.data<double>()[i] *= factor;
  t.copy_from(numbers);
}

// dq = d_scores · k: of 1e30 and 1e10, where dk, of 1e30 and 1e-20, and dv stay in the range.
TEST_P(BackwardEdges, SaysWhereOnlyTheQueriesGradientLeavesTheRange) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tk : {140, 700}) {
      Random random(23);
      Case c{};
      c.b = 1, c.hq = 2, c.hkv = 2, c.tq = 130, c.tk = tk, c.d = 40, c.dv = 32;
      draw_tensors(random, c, dtype);
      scale(c.q, 1e-20), scale(c.k, 1e10), scale(c.v, 1e15), scale(c.d_output, 1e15);
      c.first.assign(130, 0), c.last.assign(130, static_cast<std::int32_t>(tk));
      const AttentionGradient grad = backward(kernels_, c, forward(kernels_, c));
      EXPECT_FALSE(all_finite(grad.q));
      EXPECT_TRUE(all_finite(grad.k) && all_finite(grad.v));
    }
  }
}

TEST_P(BackwardEdges, MaskedRowsHaveZeroGradients) {
  Random random(3);
  Case c{};
  c.b = 1, c.hq = c.hkv = 1, c.tq = 70, c.tk = 50, c.d = c.dv = 8;
  draw_tensors(random, c, DType::f32);
  c.first.assign(70, 0), c.last.assign(70, 50);
  c.last[3] = 0;                                            // by its interval
  c.keep = Tensor::full({1, 1, 70, 1}, 1, DType::boolean);  // by the mask
  c.keep.set({0, 0, 5, 0}, 0);
  c.bias = Tensor::zeros({1, 1, 70, 1});  // by the bias
  c.bias.set({0, 0, 7, 0}, -std::numeric_limits<double>::infinity());
  const AttentionGradient g = backward(kernels_, c, forward(kernels_, c));
  for (const std::int64_t query : {3, 5, 7}) {
    EXPECT_EQ(largest(g.q.slice(2, query, query + 1)), 0) << query;
    EXPECT_EQ(g.bias.at({0, 0, query, 0}), 0) << query;
  }
  EXPECT_GT(largest(g.q), 0);
  expect_close(g, reference(c, false), c, has_matrix());
}

TEST_P(BackwardEdges, NoKeysOrNoQueries) {
  for (const auto& [tq, tk] : {std::pair<std::int64_t, std::int64_t>{5, 0}, {0, 5}, {0, 0}}) {
    Random random(4);
    Case c{};
    c.b = 1, c.hq = 2, c.hkv = 1, c.tq = tq, c.tk = tk, c.d = c.dv = 3;
    draw_tensors(random, c, DType::f32);
    c.first.assign(static_cast<std::size_t>(tq), 0), c.last.assign(static_cast<std::size_t>(tq), 0);
    c.bias = Tensor::zeros({1, 1, 1, 1});
    const AttentionGradient g = backward(kernels_, c, forward(kernels_, c));
    for (const Tensor& t : {g.q, g.k, g.v, g.bias}) EXPECT_EQ(largest(t), 0) << tq << " queries, " << tk << " keys";
  }
}

TEST_P(BackwardEdges, MemoryGrowsWithTheTokens) {
  const auto sized = [](std::int64_t t) {
    kernels::Problem p{};
    p.batch = 1, p.hq = p.hkv = 12, p.tq = p.tk = t, p.d = p.dv = 64;
    return p;
  };
  const kernels::Problem p = sized(65536), half = sized(32768);
  const std::size_t dq = 12 * 65536 * 64 * sizeof(float);
  const kernels::BackwardPlan plan = kernels::plan(p, {}, kernels_, 1);
  EXPECT_LE(plan.shared, 8 * dq);
  EXPECT_EQ(plan.shared, 2 * kernels::plan(half, {}, kernels_, 1).shared);
  EXPECT_LE(plan.scratch, std::size_t{2} << 20);
}

// One head of one item, and still more than one task to share out.
TEST_P(BackwardEdges, IsParallelWithinAHead) {
  kernels::Problem p{};
  p.batch = p.hq = p.hkv = 1, p.tq = p.tk = 4096, p.d = p.dv = 64;
  const kernels::BackwardPlan plan = kernels::plan(p, {}, kernels_, 1);
  EXPECT_GE(plan.tasks[0], 4);
  EXPECT_GE(plan.tasks[1], 4);
}

}  // namespace
}  // namespace attn
