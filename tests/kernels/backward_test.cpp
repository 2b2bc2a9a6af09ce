// The fused gradient against the reference in float64, for every instruction set of this processor.
#include <cmath>
#include <limits>
#include <thread>

#include "kernels/backward_case.hpp"

namespace attn {
namespace {

using kernels::Kernels;
using kernels::Poisoned;

struct Order {
  std::uint64_t shuffle = 0;  // 0: as they come
  std::size_t threads = 1;
};

// Every task once, in the order asked for.
template <class Task>
void run(std::int64_t tasks, std::size_t scratch_bytes, const Order& how, const Task& task) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(tasks));
  std::iota(order.begin(), order.end(), 0);
  if (how.shuffle) std::shuffle(order.begin(), order.end(), Random(how.shuffle));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < how.threads; ++t) {
    threads.emplace_back([&, t] {
      const Poisoned scratch(scratch_bytes);
      for (std::size_t i = t; i < order.size(); i += how.threads) task(order[i], scratch.data.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Forward {
  Tensor output, lse;
};

Forward forward(const Kernels& kernels, const Case& c) {
  const kernels::Problem p = problem(c);
  Forward f{Tensor::empty({c.b, c.hq, c.tq, c.dv}, c.q.dtype()), Tensor::empty({c.b, c.hq, c.tq})};
  const kernels::ForwardPlan plan = kernels::plan_tiles(p, kernels);
  const Poisoned shared(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    run(plan.tasks[phase], plan.scratch, {}, [&](std::int64_t task, void* scratch) {
      plan.kernel->run(p, plan, {rows(f.output), f.lse.data<float>(), p.tq, p.element}, phase, task, shared.data.get(),
                       scratch);
    });
  }
  return f;
}

bool all_finite(const Tensor& x) {
  const Tensor numbers = x.to(DType::f64).contiguous();
  return std::all_of(numbers.data<double>(), numbers.data<double>() + numbers.numel(),
                     [](double number) { return std::isfinite(number); });
}

AttentionGradient backward(const Kernels& kernels, const Case& c, const Forward& f, const Order& how = {}) {
  const kernels::Problem p = problem(c);
  Random random(7);
  const auto poisoned = [&](const Tensor& like) {
    const Tensor t = layout(random, like.shape(), like.dtype());
    t.fill(std::numeric_limits<double>::quiet_NaN());
    return t;
  };
  AttentionGradient out{poisoned(c.q), poisoned(c.k), poisoned(c.v), {}};
  kernels::BackwardResult result{rows(out.q), rows(out.k), rows(out.v)};
  bool finite = true;
  result.finite = &finite;
  if (c.bias.defined()) {
    out.bias = Tensor::zeros(c.bias.shape());
    const auto g = grid<float>(out.bias, c);
    result.bias = out.bias.data<float>();
    result.bias_batch = g.batch, result.bias_head = g.head, result.bias_query = g.query, result.bias_key = g.key;
  }
  const kernels::BackwardInput in{rows(f.output), rows(c.d_output), f.lse.data<float>(), p.tq};
  const kernels::BackwardPlan plan = kernels::plan(p, result, kernels);
  const Poisoned shared(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    run(plan.tasks[phase], plan.scratch, how, [&](std::int64_t task, void* scratch) {
      plan.kernel->run(p, plan, in, result, phase, task, shared.data.get(), scratch);
    });
  }
  EXPECT_EQ(finite, all_finite(out.q) && all_finite(out.k) && all_finite(out.v)) << c.str();
  return out;
}

double largest(const Tensor& t) {
  const Tensor wide = t.to(DType::f64).contiguous();
  double most = 0;
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    const double x = std::fabs(wide.data<double>()[i]);
    if (!(x <= most) && !(std::isinf(x))) most = x;  // a NaN stays
  }
  return most;
}

double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  double most = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double difference = std::fabs(x.data<double>()[i] - y.data<double>()[i]);
    if (!(difference <= most)) most = difference;
    if (std::isnan(difference)) return difference;
  }
  return most;
}

// The output is rounded to its dtype before it comes back, so a gradient that cancels to nothing keeps an error
// of an epsilon of what cancelled: `unit` is a score gradient's size, Σ_c |d_output · v|. So does one that sums
// weights and score gradients rounded to bf16, or to two parts.
void expect_close(const AttentionGradient& got, const AttentionGradient& want, const Case& c, bool matrix) {
  using kernels::Precision;
  const DType dtype = matrix && c.precision == Precision::medium ? DType::bf16 : c.q.dtype();
  const double in_f32 = matrix && c.precision == Precision::high ? 0x1p-16 : 0x1p-24;
  const double rounding = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : in_f32;
  const double epsilon = rounding + 3 * 0x1p-24;  // the dtype's, and a few of float32's on the way
  const double grown = 1 / (1 - c.dropout);
  const double unit = std::sqrt(static_cast<double>(c.dv)) * largest(c.v) * largest(c.d_output) * grown;
  const double rows = std::sqrt(static_cast<double>(c.tq * c.hq / c.hkv));
  const auto check = [&](const char* what, const Tensor& a, const Tensor& b, double error) {
    ASSERT_EQ(a.shape(), b.shape()) << what;
    EXPECT_LE(distance(a, b), epsilon * (largest(b) + error)) << what << ", largest " << largest(b);
  };
  check("dq", got.q, want.q, unit * c.scale * largest(c.k));
  check("dk", got.k, want.k, unit * c.scale * largest(c.q) * rows);
  check("dv", got.v, want.v, largest(c.d_output) * grown * rows);
  if (!c.bias.defined()) return;
  const double repeats = static_cast<double>(seen_keys(c).numel() / c.bias.numel());
  check("d_bias", got.bias, want.bias, unit * std::sqrt(repeats));
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return !b.defined();
  const Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

void expect_same_bits(const AttentionGradient& a, const AttentionGradient& b) {
  EXPECT_TRUE(same_bits(a.q, b.q)) << "dq";
  EXPECT_TRUE(same_bits(a.k, b.k)) << "dk";
  EXPECT_TRUE(same_bits(a.v, b.v)) << "dv";
  EXPECT_TRUE(same_bits(a.bias, b.bias)) << "d_bias";
}

class Backward : public kernels::Units {
 protected:
  void expect_agreement(const Case& c) const {
    const bool rounds = has_matrix() && c.precision == kernels::Precision::medium;
    expect_close(backward(kernels_, c, forward(kernels_, c)), reference(c, rounds), c, has_matrix());
  }

  void expect_agreement(std::uint64_t first_seed, std::uint64_t last_seed, Case (*draw)(Random&)) const {
    for (std::uint64_t seed = first_seed; seed <= last_seed; ++seed) {
      Random random(seed);
      const Case c = draw(random);
      SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
      expect_agreement(c);
      if (HasFailure()) break;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Backward, ::testing::ValuesIn(kernels::unit_names()),
                         [](const auto& param) { return param.param; });

TEST_P(Backward, AgreesWithTheReference) { expect_agreement(1, 40, draw_case); }

TEST_P(Backward, AgreesWithTheReferenceInParts) { expect_agreement(301, 316, draw_large); }

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
TEST_P(Backward, Bf16LeavesAnEpsilonOnTheWhole) {
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
TEST_P(Backward, ErrorsAtHighestAreNoLargerThanMultiplyAdds) {
  const std::optional<Kernels> multiply_adds = kernels::unit_named("avx512");
  if (!has_matrix() || !multiply_adds) GTEST_SKIP() << "one kernel to compare";
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Case c = plain_case(seed, 256, seed % 3 == 0 ? 512 : 256, seed % 4 < 2 ? 64 : 128, seed % 3 == 1);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
    const AttentionGradient got = backward(kernels_, c, forward(kernels_, c));
    const AttentionGradient other = backward(*multiply_adds, c, forward(*multiply_adds, c)), want = reference(c, false);
    const auto check = [](const char* what, const Tensor& a, const Tensor& b, const Tensor& exact) {
      EXPECT_LE(relative_error(a, exact), relative_error(b, exact)) << what;
      EXPECT_LE(distance(a, exact), 1.2 * distance(b, exact)) << what;
    };
    check("dq", got.q, other.q, want.q), check("dk", got.k, other.k, want.k), check("dv", got.v, other.v, want.v);
  }
}

// Of numbers of one sign the scores' gradients are small differences.
TEST_P(Backward, HighKeepsSixteenBitsOnTheWhole) {
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

// So wide that a task's keys no longer fit the cache, and pass in steps.
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
// Each head is one task's, whatever its keys; on AMX these take turns in L2. The results are large enough to be written
// past the caches.
TEST_P(Backward, AgreesForManyHeads) {
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

TEST_P(Backward, SameBitsInAnyOrderAndForAnyThreads) {
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
  const std::int64_t start = b * c.interval_batch;
  one.first.assign(c.first.begin() + start, c.first.begin() + start + c.tq);
  one.last.assign(c.last.begin() + start, c.last.begin() + start + c.tq);
  one.interval_batch = 0;
  return one;
}

TEST_P(Backward, SameBitsWhateverElseIsInTheBatch) {
  for (std::uint64_t seed = 201; seed <= 218; ++seed) {
    Random random(seed);
    const Case c = seed <= 212 ? draw_case(random) : draw_large(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.str());
    const AttentionGradient all = backward(kernels_, c, forward(kernels_, c));
    for (std::int64_t b = 0; b < c.b; ++b) {
      const Case one = item(c, b);
      const AttentionGradient alone = backward(kernels_, one, forward(kernels_, one));
      EXPECT_TRUE(same_bits(all.q.slice(0, b, b + 1), alone.q)) << "dq";
      EXPECT_TRUE(same_bits(all.k.slice(0, b, b + 1), alone.k)) << "dk";
      EXPECT_TRUE(same_bits(all.v.slice(0, b, b + 1), alone.v)) << "dv";
    }
  }
}

TEST_P(Backward, SaysWhereAGradientLeavesTheRange) {
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
TEST_P(Backward, SaysWhereOnlyTheQueriesGradientLeavesTheRange) {
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

TEST_P(Backward, MaskedRowsHaveZeroGradients) {
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

TEST_P(Backward, NoKeysOrNoQueries) {
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

TEST_P(Backward, MemoryGrowsWithTheTokens) {
  const auto sized = [](std::int64_t t) {
    kernels::Problem p{};
    p.batch = 1, p.hq = p.hkv = 12, p.tq = p.tk = t, p.d = p.dv = 64, p.interval_batch = 0;
    return p;
  };
  const kernels::Problem p = sized(65536), half = sized(32768);
  const std::size_t dq = 12 * 65536 * 64 * sizeof(float);
  const kernels::BackwardPlan plan = kernels::plan(p, {}, kernels_);
  EXPECT_LE(plan.shared, 8 * dq);
  EXPECT_EQ(plan.shared, 2 * kernels::plan(half, {}, kernels_).shared);
  EXPECT_LE(plan.scratch, std::size_t{2} << 20);
}

// One head of one item, and still more than one task to share out.
TEST_P(Backward, IsParallelWithinAHead) {
  kernels::Problem p{};
  p.batch = p.hq = p.hkv = 1, p.tq = p.tk = 4096, p.d = p.dv = 64;
  const kernels::BackwardPlan plan = kernels::plan(p, {}, kernels_);
  EXPECT_GE(plan.tasks[0], 4);
  EXPECT_GE(plan.tasks[1], 4);
}

}  // namespace
}  // namespace attn
