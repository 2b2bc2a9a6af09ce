// A released model is trained as PyTorch trains it (make_training.py).
#include <cmath>
#include <functional>
#include <numeric>

#include "attn/optim.hpp"
#include "lm/helpers.hpp"
#include "ops/dense.hpp"

namespace attn::test {
namespace {

// The same model, whose products round their inputs to bfloat16 where the processor has instructions for that.
LanguageModel with_rounded_products(LanguageModel& exact) {
  LanguageModelConfig config = exact.config();
  config.precision = Precision::medium;
  LanguageModel model(config);
  const auto to = model.parameters(), from = exact.parameters();
  for (std::size_t i = 0; i < to.size(); ++i) to[i]->value = from[i]->value.clone();
  return model;
}

double norm_of(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.));
}

class RoundedTraining : public testing::TestWithParam<std::string> {};

// Between a weight and the loss lie up to twenty products, whose roundings add up in its gradient. The gradients of the
// norms of queries and keys are sums in which most cancels: their errors are the largest, up to 21 epsilons. Before a
// delta rule short queries and keys are made 1 long, which makes their rounding larger: up to 68 epsilons, 24 of the
// whole.
TEST_P(RoundedTraining, HasTheGradientsOfFloat32) {
  constexpr double epsilon = 1. / 256;  // of bfloat16
  LanguageModel exact = load_language_model(kData / GetParam());
  LanguageModel rounded = with_rounded_products(exact);
  const Tensor ids = *io::load(kData / GetParam() / "golden.safetensors").find("ids");
  const std::int64_t tokens = ids.size(1);
  const Tensor inputs = ids.slice(1, 0, tokens - 1).contiguous(), targets = ids.slice(1, 1, tokens).contiguous();
  const double wanted = exact.loss(inputs, targets);
  EXPECT_NEAR(rounded.loss(inputs, targets), wanted, epsilon * wanted);
  exact.backward();
  rounded.backward();
  EXPECT_EQ(stored(Precision::medium) == DType::bf16, rounded.loss(inputs, targets) != wanted);
  const auto theirs = exact.parameters();
  const double more = exact.config().gated_delta ? 3 : 1;
  std::vector<double> errors, all;
  std::size_t i = 0;
  for (const Parameter* p : rounded.parameters()) {
    const auto found = values(p->grad), of = values(theirs[i++]->grad);
    std::vector<double> error;
    std::ranges::transform(found, of, std::back_inserter(error), std::minus());
    EXPECT_LE(norm_of(error), more * 32 * epsilon * norm_of(of)) << p->name;
    errors.insert(errors.end(), error.begin(), error.end());
    all.insert(all.end(), of.begin(), of.end());
  }
  EXPECT_LE(norm_of(errors), more * 16 * epsilon * norm_of(all));
  RecordProperty("error", std::to_string(norm_of(errors) / norm_of(all) / epsilon));
}

INSTANTIATE_TEST_SUITE_P(All, RoundedTraining, testing::ValuesIn(families()),
                         [](const auto& family) { return family.param; });

TEST(Training, FiftyStepsHavePyTorchsLosses) {
  const io::NamedTensors golden = io::load(kData / "training.safetensors");
  const Tensor all = *golden.find("ids");  // (steps, batch, tokens + 1)
  const auto losses = values(*golden.find("losses")), norms = values(*golden.find("norms")),
             rates = values(*golden.find("rates"));
  LanguageModel model = load_language_model(kData / "llama");
  AdamW optimizer(model.parameters());
  const std::int64_t steps = all.size(0), tokens = all.size(2) - 1;
  const CosineSchedule schedule{.peak = 1e-2, .floor = 1e-3, .warmup = 5, .steps = steps};
  ASSERT_EQ(steps, 50);
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    const Tensor ids = all.select(0, step).slice(1, 0, tokens).contiguous();
    const Tensor targets = all.select(0, step).slice(1, 1, tokens + 1).contiguous();
    model.zero_grad();
    const double loss = model.loss(ids, targets);
    model.backward();
    const double norm = gradient_norm(model.parameters());
    ASSERT_NEAR(loss, losses[at], 1e-3) << "step " << step;  // of 4.5, and 1.6 at the end
    ASSERT_NEAR(norm, norms[at], 1e-3 * norms[at]) << "step " << step;
    ASSERT_NEAR(schedule.rate(step), rates[at], 1e-12);
    optimizer.step(schedule.rate(step), clip_factor(norm, 1));
  }
  const Tensor first = all.select(0, 0).slice(1, 0, tokens).contiguous();
  expect_of_largest(model.forward(first), *golden.find("logits"), 1e-3, "logits of the trained model");
}

}  // namespace
}  // namespace attn::test
