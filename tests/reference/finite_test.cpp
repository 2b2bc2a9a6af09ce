// Finite inputs, however large, never give NaN or infinity.
#include "attn/reference.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

namespace ref = attn::reference;

struct Extreme {
  DType dtype;
  double value;
};

class Finite : public testing::TestWithParam<Extreme> {
 protected:
  // Mixed signs and sizes around the extreme value.
  Tensor draw(const Shape& shape) {
    const Tensor t = Tensor::empty(shape, GetParam().dtype);
    Tensor flat = t.view({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      const double size = std::vector<double>{1, 0.3, 1e-30, 0}[static_cast<std::size_t>(pick(rng_, 0, 3))];
      flat.set({i}, (chance(rng_, 0.5) ? size : -size) * GetParam().value);
    }
    expect_finite(t, "the input");
    return t;
  }

  std::mt19937 rng_{1};
};

TEST_P(Finite, EveryStepForward) {
  for (int round = 0; round < 20; ++round) {
    const Tensor q = draw({3, 4}), k = draw({5, 4}), v = draw({5, 2}), w = draw({2, 4}), b = draw({2});
    const Tensor s = ref::scores(q, k);
    expect_finite(s, "scores");
    EXPECT_TRUE(identical(s, ref::scores_by_loop(q, k)));
    expect_finite(ref::matmul(q, k.transpose(0, 1)), "matmul");
    expect_finite(ref::project(q, w, b), "project");
    expect_finite(ref::add(s, s), "add");
    for (const double factor : {1e300, -1e300, 1e-300, 0.5}) expect_finite(ref::scale(s, factor), "scale");
    for (const double cap : {1e-300, 50.0, 1e300}) expect_finite(ref::softcap(s, cap), "softcap");
    const Tensor weights = ref::softmax(s);
    expect_finite(weights, "softmax");
    expect_finite(ref::softmax(draw({3, 5})), "softmax of the extremes");
    expect_finite(ref::log_sum_exp(s), "log_sum_exp");
    expect_finite(ref::weighted_sum(weights, v), "weighted_sum");
    expect_finite(ref::weighted_sum(draw({3, 5}), v), "weighted_sum of the extremes");
    expect_finite(ref::dropout(draw({4}), Tensor::ones({4}, DType::boolean), 0.999), "dropout");
    for (const auto way : {ref::AverageBy::loop, ref::AverageBy::triangular, ref::AverageBy::softmax}) {
      expect_finite(ref::average_past(k, way), "average_past");
    }
  }
}

TEST_P(Finite, EveryStepBackward) {
  for (int round = 0; round < 20; ++round) {
    const Tensor q = draw({3, 4}), k = draw({5, 4}), v = draw({5, 2}), g = draw({3, 5}), s = ref::scores(q, k);
    const auto scores = ref::scores_backward(g, q, k);
    expect_finite(scores.q, "scores: q");
    expect_finite(scores.k, "scores: k");
    expect_finite(ref::softmax_backward(g, ref::softmax(s)), "softmax");
    for (const double cap : {1e-300, 50.0, 1e300}) expect_finite(ref::softcap_backward(g, s, cap), "softcap");
    const auto sum = ref::weighted_sum_backward(draw({3, 2}), g, v);
    expect_finite(sum.weights, "weighted_sum: weights");
    expect_finite(sum.v, "weighted_sum: v");
    const auto project = ref::project_backward(draw({3, 2}), q, draw({2, 4}), true);
    expect_finite(project.x, "project: x");
    expect_finite(project.weight, "project: weight");
    expect_finite(project.bias, "project: bias");
  }
}

TEST(Overflow, GivesTheLargestValueNotInfinity) {
  const std::vector<std::pair<DType, double>> all{{DType::f64, std::numeric_limits<double>::max()},
                                                  {DType::f32, std::numeric_limits<float>::max()},
                                                  {DType::f16, 65504},
                                                  {DType::bf16, 0x1.fep127}};
  for (const auto& [dtype, most] : all) {
    const Tensor x = Tensor::full({1, 2}, most, dtype);
    EXPECT_EQ(ref::matmul(x, x.transpose(0, 1)).item(), most) << name(dtype);
    EXPECT_EQ(ref::scale(x, -2).at({0, 0}), -most) << name(dtype);
    const Tensor infinite = Tensor::full({1, 1}, kInf, dtype);
    EXPECT_EQ(ref::scale(infinite, 2).item(), kInf) << "an infinity stays one";
    EXPECT_EQ(ref::scale(infinite, -1e300).item(), -kInf);
  }
}

INSTANTIATE_TEST_SUITE_P(Values, Finite,
                         testing::Values(Extreme{DType::f32, 1e38}, Extreme{DType::f32, 3e38},
                                         Extreme{DType::f32, 3.4028234e38}, Extreme{DType::f64, 1e300},
                                         Extreme{DType::f64, 1.7e308}, Extreme{DType::f16, 65504},
                                         Extreme{DType::bf16, 3e38}),
                         [](const auto& instance) {
                           return std::string(name(instance.param.dtype)) + "_" + std::to_string(instance.index);
                         });

}  // namespace
}  // namespace attn::test
