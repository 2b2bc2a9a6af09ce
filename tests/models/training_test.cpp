// A released model is trained as PyTorch trains it (make_training.py).
#include "attn/optim.hpp"
#include "models/helpers.hpp"

namespace attn::test {
namespace {

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
