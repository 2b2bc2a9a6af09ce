// Products of less than float32, as Linear and the attention modules ask for them.
#include <omp.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attn/reference.hpp"
#include "core/largest.hpp"
#include "modules/helpers.hpp"

namespace attn::test {
namespace {

// `epsilons` of bf16, of the largest.
void expect_near(const Tensor& got, const Tensor& want, double epsilons, const std::string& what) {
  expect_of_largest(got, want, epsilons * 0x1p-8, what);
}

struct Gradients {
  Tensor y, dx, weight, bias;
};

Gradients pass(Linear& linear, const Tensor& x, const Tensor& dy) {
  linear.zero_grad();
  const Tensor y = linear.forward(x), dx = linear.backward(dy, x);
  return {y, dx, linear.weight.grad, linear.bias.grad};
}

void expect_near(const Gradients& got, const Gradients& want, double epsilons) {
  expect_near(got.y, want.y, epsilons, "y");
  expect_near(got.dx, want.dx, epsilons, "dx");
  expect_near(got.weight, want.weight, epsilons, "d_weight");
  expect_near(got.bias, want.bias, epsilons, "d_bias");
}

TEST(Precision, LinearInEachStaysWithinItsRounding) {
  Generator rng(1);
  Linear linear(70, 50, true, rng);
  const Tensor x = draw({2, 30, 70}, 2), dy = draw({2, 30, 50}, 3);
  const Gradients exact = pass(linear, x, dy);
  linear.precision = Precision::medium;
  expect_near(pass(linear, x, dy), exact, 1);
  linear.precision = Precision::high;
  expect_near(pass(linear, x, dy), exact, 0x1p-6);
}

// Finite in, finite out, also where bf16's parts would leave the range.
TEST(Precision, LinearAtHighTakesEveryFloat) {
  Generator rng(1);
  Linear linear(3, 2, true, rng);
  linear.weight.value = Tensor::full({2, 3}, 0.25), linear.bias.value = Tensor::zeros({2});
  linear.precision = Precision::high;
  const double largest = std::numeric_limits<float>::max(), infinity = std::numeric_limits<double>::infinity();
  for (const double x : {largest, -largest, 3.4e38, 1.0, 1e-38, 0.0}) {
    const double y = linear.forward(Tensor::full({9, 3}, x)).at({8, 1});
    EXPECT_NEAR(y, 0.75 * x, 0x1p-15 * std::abs(x) + 0x1p-125) << x;
  }
  EXPECT_EQ(linear.forward(Tensor::full({9, 3}, infinity)).at({8, 1}), infinity);
  EXPECT_TRUE(std::isnan(linear.forward(Tensor::full({9, 3}, std::nan(""))).at({8, 1})));
}

TEST(Precision, LinearOfHalvesKeepsTheirDtype) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Generator rng(1);
    Linear linear(70, 50, true, rng);
    const Tensor x = draw({30, 70}, 2), dy = draw({30, 50}, 3);
    const Gradients exact = pass(linear, x, dy);
    for (Parameter* p : linear.parameters()) p->value = p->value.to(dtype);
    const Gradients got = pass(linear, x.to(dtype), dy.to(dtype));
    EXPECT_EQ(got.y.dtype(), dtype);
    EXPECT_EQ(got.weight.dtype(), dtype);
    EXPECT_EQ(got.bias.dtype(), dtype);
    expect_near(got, exact, 2);
  }
}

// A result past a dtype's range is left to the reference, which gives the largest finite value.
TEST(Precision, LinearOfHalvesStaysFinite) {
  Generator rng(1);
  Linear linear(4, 3, true, rng);
  linear.weight.value = Tensor::full({3, 4}, 300, DType::f16), linear.bias.value = Tensor::zeros({3}, DType::f16);
  const Tensor x = Tensor::full({2, 4}, 300, DType::f16);
  EXPECT_EQ(linear.forward(x).at({1, 2}), 65504);
}

// A row with an output past the range is computed once more; its large number does not take the small ones' place.
TEST(Precision, LinearOfNumbersOfEverySize) {
  Generator rng(1);
  Linear linear(4, 2, true, rng);
  linear.weight.value = tensor({10, 1, 1, 1, 0, 1, 1, 1}, {2, 4}, DType::f32);
  linear.bias.value = Tensor::zeros({2});
  const Tensor y = linear.forward(tensor({3e38, 1, 2, 3, 3e38, 4, 5, 6}, {2, 4}, DType::f32));
  EXPECT_EQ(y.at({0, 0}), std::numeric_limits<float>::max());
  EXPECT_EQ(y.at({0, 1}), 6);
  EXPECT_EQ(y.at({1, 1}), 15);
}

TEST(Precision, AttentionInMedium) {
  const ModuleConfig config{.d_in = 24, .d_out = 32, .num_heads = 2};
  ModuleConfig medium = config;
  medium.precision = Precision::medium;
  Generator rng(1), same(1);
  MultiHeadAttention exact(config, rng), rough(medium, same);
  const Tensor x = draw({2, 40, 24}, 2), dz = draw({2, 40, 32}, 3);
  expect_near(rough.forward(x), exact.forward(x), 3, "z");
  expect_near(rough.backward(dz).x, exact.backward(dz).x, 6, "dx");
  for (std::size_t i = 0; i < exact.parameters().size(); ++i) {
    expect_near(rough.parameters()[i]->grad, exact.parameters()[i]->grad, 6, exact.parameters()[i]->name);
  }
}

// Rows of a thread's next task are packed beside the products of the one before, whichever those are.
TEST(Precision, LinearsThreadsDoNotChangeABit) {
  Generator rng(11);
  const Tensor x = rng.randn({700, 160}), dy = rng.randn({700, 420});
  for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
    Linear linear(160, 420, true, rng);
    linear.precision = precision;
    const int threads = omp_get_max_threads();
    std::vector<Gradients> runs;
    for (const int count : {1, 2, 5}) {
      omp_set_num_threads(count);
      runs.push_back(pass(linear, x, dy));
      for (Tensor* t : {&runs.back().weight, &runs.back().bias}) *t = t->clone();
    }
    omp_set_num_threads(threads);
    for (const Gradients& run : runs) {
      EXPECT_TRUE(identical(run.y, runs[0].y));
      EXPECT_TRUE(identical(run.dx, runs[0].dx));
      EXPECT_TRUE(identical(run.weight, runs[0].weight));
      EXPECT_TRUE(identical(run.bias, runs[0].bias));
    }
  }
}

}  // namespace
}  // namespace attn::test
