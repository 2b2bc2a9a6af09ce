// Dense products of every dtype and precision: against float64, and bit for bit against themselves in other company.
#include <cmath>
#include <limits>

#include "attention/element.hpp"
#include "attn/tensor.hpp"
#include "kernels/units.hpp"

namespace attn::kernels {
namespace {

using test::identical, test::pick;
using Random = std::mt19937_64;

struct Kind {
  const char* name;
  DType a, b, c;
  Precision precision;
};
constexpr Kind kKinds[] = {{"float32", DType::f32, DType::f32, DType::f32, Precision::highest},
                           {"high", DType::f32, DType::f32, DType::f32, Precision::high},
                           {"medium", DType::f32, DType::f32, DType::f32, Precision::medium},
                           {"bf16", DType::bf16, DType::bf16, DType::bf16, Precision::highest},
                           {"f16", DType::f16, DType::f16, DType::f16, Precision::highest},
                           {"bf16 by float32", DType::bf16, DType::f32, DType::bf16, Precision::medium},
                           {"float32 by bf16", DType::f32, DType::bf16, DType::f32, Precision::medium},
                           {"bf16 to float32", DType::bf16, DType::bf16, DType::f32, Precision::highest},
                           {"bf16 by float32, high", DType::bf16, DType::f32, DType::f32, Precision::high},
                           {"bf16 by float32, highest", DType::bf16, DType::f32, DType::f32, Precision::highest}};

// (rows, columns), with a gap after each row or, transposed, after each column.
Tensor matrix(Random& random, std::int64_t rows, std::int64_t columns, DType dtype) {
  const bool transposed = pick(random, 0, 1) == 1;
  const std::int64_t lines = transposed ? columns : rows, length = transposed ? rows : columns;
  const Tensor wide = Tensor::empty({lines, length + pick(random, 0, 3)}, dtype);
  std::normal_distribution<double> normal;
  Tensor t = wide.slice(1, 0, length);
  for (std::int64_t i = 0; i < lines; ++i) {
    for (std::int64_t j = 0; j < length; ++j) t.set({i, j}, normal(random));
  }
  return transposed ? t.transpose(0, 1) : t;
}

struct Case {
  Kind kind;
  Tensor a, b, bias, residual;  // bias (1, n) and residual (m, n): float32, or undefined
};

Case draw_case(Random& random, const Kind& kind) {
  // Depths of one block at most; of many; of several, and several tasks.
  const std::int64_t depth = pick(random, 0, 4), most = depth == 0 ? 2500 : depth == 1 ? 400 : 100;
  const std::int64_t m = depth == 0 ? pick(random, 1, 40) : pick(random, depth == 1 ? 97 : 1, 220);
  const std::int64_t n = pick(random, 1, depth == 0 ? 70 : depth == 1 ? 150 : 300);
  const bool whole = pick(random, 0, 2) == 0;  // rows that can be read in place
  const std::int64_t k = whole ? 32 * pick(random, 1, most / 32) : pick(random, 1, most);
  Case c{kind, matrix(random, m, k, kind.a), matrix(random, k, n, kind.b), {}, {}};
  if (pick(random, 0, 1)) c.bias = matrix(random, 1, n, DType::f32).contiguous();
  if (pick(random, 0, 1)) c.residual = matrix(random, m, n, DType::f32).contiguous();
  return c;
}

std::int64_t step(const Tensor& t, std::int64_t dim) { return t.size(dim) == 1 ? 1 : t.stride(dim); }

// (m, n), its tasks in a random order; undefined when the kernel says that a result left the range.
Tensor run(const Kernels& kernels, const Case& c, Random& random) {
  const Tensor out = Tensor::full({c.a.size(0), c.b.size(1)}, std::nan(""), c.kind.c);
  const Product p{.m = c.a.size(0),
                  .n = c.b.size(1),
                  .k = c.a.size(1),
                  .a = c.a.raw(),
                  .a_row = step(c.a, 0),
                  .a_depth = step(c.a, 1),
                  .b = c.b.raw(),
                  .b_depth = step(c.b, 0),
                  .b_column = step(c.b, 1),
                  .bias = c.bias.defined() ? c.bias.data<float>() : nullptr,
                  .c = out.raw(),
                  .c_row = c.b.size(1),
                  .a_element = element(c.a.dtype()),
                  .b_element = element(c.b.dtype()),
                  .c_element = element(out.dtype()),
                  .precision = c.kind.precision,
                  .residual = c.residual.defined() ? c.residual.data<float>() : nullptr};
  const ProductPlan plan = kernels::plan(p, kernels, 1);
  const Poisoned packed(plan.packed);
  for (const std::int64_t i : shuffled(plan.pack_tasks, random)) plan.kernel->pack(p, plan, packed.data.get(), i);
  const bool fits = run_product(p, plan, packed.data.get(), shuffled(plan.tasks[0], random));
  return fits ? out : Tensor{};
}

double rounded(double x) { return static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(x)))); }

// Errors: of float32's sums, of what parts in bf16 leave of a product, of the result's dtype.
void expect_close(const Case& c, const Tensor& got, bool rounds) {
  const bool medium = rounds && c.kind.precision == Precision::medium;
  const double parts = c.kind.precision == Precision::high ? 0x3p-16 : 0;
  const double narrow = c.kind.c == DType::bf16 ? 0x1p-8 : c.kind.c == DType::f16 ? 0x1p-11 : 0;
  const std::int64_t k = c.a.size(1);
  const Tensor rows = c.a.to(DType::f64).contiguous(), columns = c.b.to(DType::f64).transpose(0, 1).contiguous();
  for (const Tensor& t : {rows, columns}) {
    for (std::int64_t i = 0; medium && i < t.numel(); ++i) t.data<double>()[i] = rounded(t.data<double>()[i]);
  }
  for (std::int64_t i = 0; i < got.size(0); ++i) {
    for (std::int64_t j = 0; j < got.size(1); ++j) {
      const double *a = rows.data<double>() + i * k, *b = columns.data<double>() + j * k;
      double sum = 0, terms = 0;
      for (std::int64_t l = 0; l < k; ++l) sum += a[l] * b[l], terms += std::abs(a[l] * b[l]);
      if (c.bias.defined()) sum += c.bias.at({0, j}), terms += std::abs(c.bias.at({0, j}));
      if (c.residual.defined()) sum += c.residual.at({i, j}), terms += std::abs(c.residual.at({i, j}));
      const double in_sum = std::sqrt(static_cast<double>(k + 16)) * 0x1p-23;
      ASSERT_NEAR(got.at({i, j}), sum, (in_sum + parts) * terms + narrow * std::abs(sum) + 1e-7 * narrow)
          << i << ", " << j;
    }
  }
}

class Products : public Units {};
INSTANTIATE_TEST_SUITE_P(Kernels, Products, testing::ValuesIn(unit_names()),
                         [](const auto& param) { return param.param; });

TEST_P(Products, AgreeWithFloat64) {
  for (const Kind& kind : kKinds) {
    for (unsigned seed = 1; seed <= 8; ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind);
      SCOPED_TRACE(std::string(kind.name) + ", seed " + std::to_string(seed) + ": " + c.a.shape().str() + " · " +
                   c.b.shape().str());
      const Tensor got = run(kernels_, c, random);
      ASSERT_TRUE(got.defined());
      expect_close(c, got, has_matrix());
      if (HasFatalFailure()) return;
    }
  }
}

// There are so many rows that tasks are as high as they become, and the depth has several blocks. The rows do not fill
// a strip.
TEST_P(Products, HighTasksAgreeWithFloat64) {
  for (unsigned seed = 201; seed <= 200 + test::seeds(4); ++seed) {
    Random random(seed);
    Case c{kKinds[seed % 2 == 0 ? 0 : 4], {}, {}, matrix(random, 1, 40, DType::f32).contiguous(), {}};
    c.a = matrix(random, 6200 + pick(random, 0, 20), 400, c.kind.a), c.b = matrix(random, 400, 40, c.kind.b);
    SCOPED_TRACE(std::string(c.kind.name) + ", seed " + std::to_string(seed) + ": " + c.a.shape().str());
    expect_close(c, run(kernels_, c, random), has_matrix());
    if (HasFatalFailure()) return;
  }
}

// A row and a column alone, and rows of another layout in memory: the same bits.
TEST_P(Products, AnElementDoesNotDependOnTheOthers) {
  for (const Kind& kind : kKinds) {
    for (unsigned seed = 101; seed <= 108; ++seed) {
      Random random(seed);
      const Case c = draw_case(random, kind);
      const Tensor all = run(kernels_, c, random);
      const std::int64_t i = pick(random, 0, all.size(0) - 1), j = pick(random, 0, all.size(1) - 1);
      Case row = c, column = c, dense = c;
      row.a = c.a.slice(0, i, i + 1);
      column.b = c.b.slice(1, j, j + 1);
      if (c.bias.defined()) column.bias = c.bias.slice(1, j, j + 1);
      if (c.residual.defined()) {
        row.residual = c.residual.slice(0, i, i + 1), column.residual = c.residual.slice(1, j, j + 1).contiguous();
      }
      dense.a = c.a.clone(), dense.b = c.b.transpose(0, 1).clone().transpose(0, 1);
      SCOPED_TRACE(std::string(kind.name) + ", seed " + std::to_string(seed));
      EXPECT_TRUE(identical(run(kernels_, row, random), all.slice(0, i, i + 1)));
      EXPECT_TRUE(identical(run(kernels_, column, random), all.slice(1, j, j + 1).contiguous()));
      EXPECT_TRUE(identical(run(kernels_, dense, random), all));
    }
  }
}

TEST_P(Products, SayWhenAResultLeavesTheRange) {
  for (const Kind& kind : kKinds) {
    Random random(1);
    for (const std::int64_t k : {2, 200}) {
      for (const double most : {kind.c == DType::f16 ? 6e4 : 3e38, 1.0}) {
        Case c{kind, Tensor::full({3, k}, most, kind.a), Tensor::ones({k, 5}, kind.b), {}, {}};
        EXPECT_EQ(run(kernels_, c, random).defined(), most == 1) << kind.name;
        c.b.set({0, 4}, std::nan(""));
        EXPECT_FALSE(run(kernels_, c, random).defined()) << kind.name;
      }
    }
  }
}

// A product of two numbers is as exact as its parts in bf16, also where a number has no lower parts or they lie outside
// bf16's range. A number that bf16 rounds to infinity may be reported in place of being computed.
TEST_P(Products, PartsOfEveryMagnitude) {
  constexpr double kLeast = 0x1p-126;  // below it a part is zero
  constexpr std::int64_t kDepth = 64;  // where float32 at highest precision has parts
  const double largest = std::numeric_limits<float>::max(), infinity = std::numeric_limits<double>::infinity();
  for (const Kind& kind : {kKinds[0], kKinds[1]}) {
    const double lost = kind.precision == Precision::high ? 0x3p-16 : 0x3p-24;
    for (const double a :
         {1.0,     1 + 0x1p-7, 1 + 0x1p-8, 1 + 0x1p-9, 1 - 0x1p-24, 256.0, 257.0, 3.1415926, 1e30,     3.38e38,
          largest, 1e-30,      1e-36,      2e-38,      1e-40,       1e-45, 0.0,   -0.0,      infinity, std::nan("")}) {
      for (const double b : {1.0, -1 - 0x1p-23, 0x1p-20, 1e-3, -0.75}) {
        SCOPED_TRACE(std::string(kind.name) + ": " + std::to_string(a) + " · " + std::to_string(b));
        const Case c{kind, Tensor::zeros({1, kDepth}), Tensor::zeros({kDepth, 1}), {}, {}};
        c.a.data<float>()[3] = static_cast<float>(a), c.b.data<float>()[3] = static_cast<float>(b);
        Random random(1);
        const double x = c.a.at({0, 3}), want = x * c.b.at({3, 0});
        const Tensor got = run(kernels_, c, random);
        ASSERT_TRUE(got.defined() || !(std::abs(x) < 0x1.ffp127));
        if (!got.defined()) continue;
        ASSERT_TRUE(std::isfinite(x));
        ASSERT_NEAR(got.at({0, 0}), want, lost * std::abs(want) + kLeast * (1 + std::abs(b)));
      }
    }
  }
}

// At highest precision errors do not exceed those of a chain of float32's multiply-adds, in rms and at most: of normal
// numbers, of numbers of every size, and of products that nearly cancel.
TEST_P(Products, HighestIsAsExactAsMultiplyAdds) {
  constexpr std::int64_t kRows = 16;
  Random random(1);
  std::normal_distribution<float> normal;
  for (const std::int64_t k : {64, 384, 1536}) {
    for (const char* numbers : {"normal", "of every size", "cancelling"}) {
      const Case c{kKinds[0], Tensor::empty({kRows, k}), Tensor::empty({kRows, k}).transpose(0, 1), {}, {}};
      float *a = c.a.data<float>(), *b = c.b.data<float>();  // both by rows of the depth
      for (std::int64_t i = 0; i < kRows * k; ++i) {
        const bool scaled = numbers[0] == 'o', cancels = numbers[0] == 'c' && i % 2 == 1;
        a[i] = cancels ? a[i - 1] : normal(random) * (scaled ? std::exp2(4 * normal(random)) : 1);
        b[i] = cancels ? -b[i - 1] * (1 + 1e-4f * a[i]) : normal(random) * (scaled ? std::exp2(4 * normal(random)) : 1);
      }
      const Tensor got = run(kernels_, c, random);
      double squares = 0, chain_squares = 0, most = 0, chain_most = 0;
      for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t j = 0; j < kRows; ++j) {
          double sum = 0, terms = 0;
          float chain = 0;
          for (std::int64_t l = 0; l < k; ++l) {
            const double x = a[i * k + l], y = b[j * k + l];
            sum += x * y, terms += x * x * y * y;
            chain = std::fma(a[i * k + l], b[j * k + l], chain);
          }
          const double error = (got.at({i, j}) - sum) / std::sqrt(terms), chained = (chain - sum) / std::sqrt(terms);
          squares += error * error, chain_squares += chained * chained;
          most = std::max(most, std::abs(error)), chain_most = std::max(chain_most, std::abs(chained));
        }
      }
      const double share = GetParam() == "scalar" ? 3 : 1.05;  // the compiler's baseline may round twice
      EXPECT_LE(std::sqrt(squares), share * std::sqrt(chain_squares)) << numbers << ", " << k;
      EXPECT_LE(most, share * chain_most) << numbers << ", " << k;
    }
  }
}

}  // namespace
}  // namespace attn::kernels
