// AdamW, clipping and the schedule by their definitions in double. Against PyTorch: golden/train_test.cpp.
#include "attn/optim.hpp"

#include "core/testing.hpp"

namespace attn::test {
namespace {

Parameter parameter(std::mt19937& rng, const std::string& name, const Shape& shape) {
  return {name, uniform(rng, shape, DType::f32), uniform(rng, shape, DType::f32, -2, 2)};
}

TEST(AdamW, StepsAreTheDefinition) {
  for_seeds(10, [](std::mt19937& rng) {
    Parameter matrix = parameter(rng, "a", {pick(rng, 1, 9), pick(rng, 1, 9)}),
              vector = parameter(rng, "b", {pick(rng, 1, 40)});
    Parameter without{"c", uniform(rng, {3}, DType::f32), {}};
    const Tensor untouched = without.value.clone();
    const AdamWConfig config{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-6, .weight_decay = 0.3};
    AdamW optimizer({&matrix, &vector, &without}, config);
    for (Parameter* p : {&matrix, &vector}) {
      ASSERT_TRUE(p->value.is_contiguous());
    }
    std::vector<std::vector<double>> value{values(matrix.value), values(vector.value)}, mean, square;
    for (const auto& v : value) mean.emplace_back(v.size()), square.emplace_back(v.size());
    for (int step = 1; step <= 5; ++step) {
      const double rate = 0.01 * step, factor = 0.7;
      for (Parameter* p : {&matrix, &vector}) p->grad = uniform(rng, p->value.shape(), DType::f32, -2, 2);
      for (std::size_t which = 0; which < 2; ++which) {
        const auto grad = values(which == 0 ? matrix.grad : vector.grad);
        for (std::size_t i = 0; i < grad.size(); ++i) {
          const double g = grad[i] * factor;
          double &m = mean[which][i], &v = square[which][i], &w = value[which][i];
          if (which == 0) w -= rate * config.weight_decay * w;
          m = config.beta1 * m + (1 - config.beta1) * g;
          v = config.beta2 * v + (1 - config.beta2) * g * g;
          const double m_hat = m / (1 - std::pow(config.beta1, step)), v_hat = v / (1 - std::pow(config.beta2, step));
          w -= rate * m_hat / (std::sqrt(v_hat) + config.epsilon);
        }
      }
      optimizer.step(rate, factor);
      expect_close(matrix.value, tensor(value[0], matrix.value.shape()), 2e-6, "matrix");
      expect_close(vector.value, tensor(value[1], vector.value.shape()), 2e-6, "vector");
    }
    EXPECT_TRUE(identical(without.value, untouched));
    EXPECT_EQ(optimizer.steps(), 5);
  });
}

TEST(AdamW, AStateContinuesBitForBit) {
  std::mt19937 rng(1);
  Parameter a = parameter(rng, "a", {5, 7}), b = a;
  b.value = a.value.clone();
  AdamW one({&a});
  one.step(0.1);
  AdamW other({&b});
  b.value.copy_from(a.value);
  StateDict saved;
  for (const auto& [name, tensor] : one.state_dict()) saved.emplace(name, tensor.clone());
  other.load_state_dict(saved);
  one.step(0.1), other.step(0.1);
  EXPECT_TRUE(identical(a.value, b.value));
  EXPECT_EQ(other.steps(), 2);
  saved.erase("exp_avg.a");
  expect_error(Error::Kind::data, {"exp_avg.a"}, [&] { other.load_state_dict(saved); });
  saved["exp_avg.a"] = Tensor::zeros({7, 5});
  expect_error(Error::Kind::shape, {"(5, 7)"}, [&] { other.load_state_dict(saved); });
  saved["exp_avg.a"] = Tensor::zeros({5, 7}, DType::f64);
  expect_error(Error::Kind::dtype, {"float32"}, [&] { other.load_state_dict(saved); });
}

TEST(AdamW, RefusesStatesThatNoRunHas) {
  std::mt19937 rng(1);
  Parameter a = parameter(rng, "a", {2, 3});
  AdamW optimizer({&a});
  optimizer.step(0.1);
  const auto refuse = [&](const char* name, const Tensor& value, const std::vector<std::string>& parts) {
    StateDict state = optimizer.state_dict();
    state[name] = value;
    expect_error(Error::Kind::data, parts, [&] { optimizer.load_state_dict(state); });
    EXPECT_EQ(optimizer.steps(), 1);
  };
  refuse("steps", Tensor::full({1}, -1, DType::i64), {"steps from 0", "-1"});
  refuse("steps", Tensor::full({1}, 1e18, DType::i64), {"steps from 0 to 2^53"});
  refuse("exp_avg_sq.a", Tensor::full({2, 3}, -1), {"exp_avg_sq.a finite and of at least 0", "-1"});
  refuse("exp_avg.a", Tensor::full({2, 3}, std::nan("")), {"exp_avg.a finite", "nan"});
  refuse("exp_avg.b", Tensor::zeros({2, 3}), {"only this optimizer's state", "exp_avg.b"});
  Parameter twice = parameter(rng, "a", {2, 3});
  const AdamW both({&a, &twice});
  expect_error(Error::Kind::argument, {"different names"}, [&] { both.state_dict(); });
}

TEST(AdamW, RefusesWeightsThatWereReplaced) {
  Parameter p{"p", Tensor::ones({2}), Tensor::ones({2})};
  AdamW optimizer({&p});
  p.value = p.grad = Tensor::ones({100000});
  expect_error(Error::Kind::shape, {"p as it was", "(2,)", "(100000,)"}, [&] { optimizer.step(0.1); });
  p.value = Tensor::ones({2, 2}).select(1, 0), p.grad = Tensor::ones({2});
  expect_error(Error::Kind::shape, {"p as it was", "strides"}, [&] { optimizer.step(0.1); });
  p.value = Tensor::ones({2}), p.grad = Tensor::ones({2}, DType::f64);
  expect_error(Error::Kind::dtype, {"the gradient of p", "float64"}, [&] { optimizer.step(0.1); });
  EXPECT_EQ(optimizer.steps(), 0);
  p.grad = Tensor::ones({2});
  optimizer.step(0.1);
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(AdamW, HugeGradientsStayFinite) {
  Parameter p{"p", Tensor::ones({20}), Tensor::full({20}, 3e38)};
  AdamW optimizer({&p});
  const double norm = gradient_norm(std::vector<Parameter*>{&p});
  EXPECT_NEAR(norm / (3e38 * std::sqrt(20.0)), 1, 1e-6);
  for (int step = 0; step < 3; ++step) optimizer.step(0.1, 1);
  expect_finite(p.value, "weights");
  for (const auto& [name, tensor] : optimizer.state_dict()) expect_finite(tensor, name);
}

// A loop sees by these that training diverged, whether it clips or not.
TEST(AdamW, GradientsThatAreNotFiniteAreSeenAndChangeNothing) {
  for (const double poison : {kNan, kInf, -kInf}) {
    Parameter p{"p", Tensor::ones({70000}), Tensor::ones({70000})};
    AdamW optimizer({&p});
    optimizer.step(0.1);
    const Tensor before = p.value.clone();
    p.grad.set({69999}, poison);
    const double norm = gradient_norm(std::vector<Parameter*>{&p});
    EXPECT_FALSE(std::isfinite(norm));
    for (const double limit : {0.0, 1.0}) {
      EXPECT_TRUE(std::isnan(clip_factor(norm, limit)));
      expect_error(Error::Kind::argument, {"finite grad_factor", "nan"},
                   [&] { optimizer.step(0.1, clip_factor(norm, limit)); });
    }
    EXPECT_TRUE(identical(p.value, before));
    EXPECT_EQ(optimizer.steps(), 1);
  }
}

TEST(AdamW, Errors) {
  Parameter p{"p", Tensor::ones({3}), Tensor::ones({4})};
  AdamW optimizer({&p});
  expect_error(Error::Kind::shape, {"p, (3,)", "(4,)"}, [&] { optimizer.step(0.1); });
  EXPECT_THROW(AdamW({&p}, {.beta1 = 1}), Error);
  EXPECT_THROW(AdamW({&p}, {.weight_decay = -1}), Error);
  expect_error(Error::Kind::argument, {"parameters", "null"}, [] { AdamW({nullptr}); });
  Parameter wide{"wide", Tensor::ones({3}, DType::f64), {}};
  expect_error(Error::Kind::dtype, {"float32", "float64"}, [&] { AdamW({&wide}); });
  Parameter turned{"turned", Tensor::ones({3, 2}).transpose(0, 1), {}};
  expect_error(Error::Kind::shape, {"turned contiguous", "strides (1, 2)"}, [&] { AdamW({&turned}); });
  expect_error(Error::Kind::shape, {"[gradient_norm]"}, [&] { gradient_norm(std::vector<Parameter*>{&p}); });
  expect_error(Error::Kind::argument, {"[clip_factor]"}, [] { clip_factor(1, -1); });
}

TEST(Clipping, ScalesDownToTheLimitOnly) {
  EXPECT_EQ(clip_factor(5, 0), 1);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_NEAR(clip_factor(4, 1), 0.25, 1e-6);
  EXPECT_EQ(clip_factor(0, 1), 1);
  std::mt19937 rng(1);
  Parameter a = parameter(rng, "a", {300, 301}), b{"b", Tensor::ones({2}), {}};
  double sum = 0;
  for (const double g : values(a.grad)) sum += g * g;
  EXPECT_NEAR(gradient_norm(std::vector<Parameter*>{&a, &b}), std::sqrt(sum), 1e-9 * std::sqrt(sum));
}

TEST(CosineSchedule, WarmsUpAndFalls) {
  const CosineSchedule s{.peak = 1, .floor = 0.1, .warmup = 10, .steps = 110};
  EXPECT_DOUBLE_EQ(s.rate(0), 0.1);
  EXPECT_DOUBLE_EQ(s.rate(9), 1);
  EXPECT_DOUBLE_EQ(s.rate(10), 1);
  EXPECT_NEAR(s.rate(60), 0.55, 1e-12);
  EXPECT_NEAR(s.rate(110), 0.1, 1e-12);
  EXPECT_NEAR(s.rate(1000), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ((CosineSchedule{.peak = 1, .floor = 0.5, .warmup = 0, .steps = 0}.rate(0)), 1);
  const auto refuse = [](const char* what, const CosineSchedule& schedule, std::int64_t step) {
    expect_error(Error::Kind::argument, {"[CosineSchedule]", what}, [&] { schedule.rate(step); });
  };
  for (const std::int64_t below : {std::int64_t{-1}, std::int64_t{-5}, std::numeric_limits<std::int64_t>::min()}) {
    refuse("step of at least 0", s, below);
    refuse("warmup of at least 0", {.warmup = below}, 0);
    refuse("steps of at least 0", {.steps = below}, 0);
  }
  for (const double rate : {kNan, kInf, -1.0}) {
    refuse("peak and floor", {.peak = rate}, 0);
    refuse("peak and floor", {.floor = rate}, 0);
  }
}

}  // namespace
}  // namespace attn::test
