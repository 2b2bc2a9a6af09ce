// Language models against PyTorch's: the pieces, every gradient, and two hundred steps of training.
#include <omp.h>

#include "attn/cross_entropy.hpp"
#include "attn/gpt.hpp"
#include "attn/optim.hpp"
#include "core/largest.hpp"
#include "golden/golden.hpp"

namespace {

using namespace attn;
using golden::Case;

// Gradients and outputs: 1e-5 of the largest element.
void expect_near(const Case& c, const std::string& what, const Tensor& found) {
  test::expect_of_largest(found, c.expected.at(what), 1e-5, what + " of case " + c.number + " " + c.config.line());
}

struct Piece {
  Tensor x, weight, bias, dy;
  Generator rng;
  explicit Piece(const Case& c) : rng(static_cast<std::uint64_t>(c.config.integer("seed"))) {
    const Shape shape{c.config.integer("rows"), c.config.integer("width")};
    x = rng.uniform(shape, -1, 1);
    weight = rng.uniform({shape[1]}, -1, 1);
    bias = rng.uniform({shape[1]}, -1, 1);
    dy = rng.uniform(shape, -1, 1);
    multiply(x, c.config.real("scale"));
  }
  static void multiply(const Tensor& t, double factor) {
    for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] *= static_cast<float>(factor);
  }
};

TEST(GoldenTrain, LayerNorm) {
  for (const Case& c : golden::cases("train", "layer_norm")) {
    const Piece p(c);
    LayerNorm norm(p.weight.numel());
    norm.weight.value = p.weight, norm.bias.value = p.bias;
    expect_near(c, "output", norm.forward(p.x));
    expect_near(c, "x.grad", norm.backward(p.dy).x);
    expect_near(c, "weight.grad", norm.weight.grad);
    expect_near(c, "bias.grad", norm.bias.grad);
  }
}

TEST(GoldenTrain, Gelu) {
  for (const Case& c : golden::cases("train", "gelu")) {
    const Piece p(c);
    const Activation form = c.name == "tanh" ? Activation::gelu_tanh : Activation::gelu;
    expect_near(c, "output", gelu(p.x, form));
    expect_near(c, "x.grad", gelu_backward(p.dy, p.x, form));
  }
}

TEST(GoldenTrain, CrossEntropy) {
  for (const Case& c : golden::cases("train", "cross_entropy")) {
    const Piece p(c);
    Piece::multiply(p.x, 5);
    const Tensor& targets = c.expected.at("targets");
    const CrossEntropy found = cross_entropy(p.x, targets);
    const double expected = c.expected.at("loss").item();
    EXPECT_NEAR(found.loss * static_cast<double>(found.count), expected, 1e-5 * std::max(1.0, expected));
    cross_entropy_in_place(p.x, targets, 1);
    expect_near(c, "logits.grad", p.x);
  }
}

GPTConfig config_of(const golden::Config& c) {
  GPTConfig config;
  config.vocab_size = c.integer("vocab");
  config.context_length = c.integer("context");
  config.layers = c.integer("layers");
  config.heads = c.integer("heads");
  config.width = c.integer("width");
  config.dropout = c.real("dropout");
  config.gelu = c.text("gelu") == "tanh" ? Activation::gelu_tanh : Activation::gelu;
  config.tied = c.flag("tied");
  return config;
}

TEST(GoldenTrain, EveryGradientOfAModel) {
  for (const Case& c : golden::cases("train", "model")) {
    Generator rng(static_cast<std::uint64_t>(c.config.integer("seed")), DropoutFlavour::native);
    GPT model(config_of(c.config), rng);
    model.train();
    const Shape shape{c.config.integer("batch"), c.config.integer("tokens")};
    const Tensor ids = rng.randint(0, model.config().vocab_size, shape);
    const Tensor targets = rng.randint(0, model.config().vocab_size, shape);
    EXPECT_NEAR(model.loss(ids, targets), c.expected.at("loss").item(), 1e-5) << c.config.line();
    model.backward();
    std::size_t seen = 1;
    for (const Parameter* p : model.parameters()) {
      if (p->name.ends_with("W_key.bias")) {  // its gradient is zero but for rounding: softmax knows no shift
        ++seen;
        continue;
      }
      expect_near(c, p->name + ".grad", p->grad);
      ++seen;
    }
    EXPECT_EQ(seen, c.expected.size()) << "every tensor of PyTorch's is compared";
  }
}

// generate text(): runs over the vocabulary.
std::vector<std::int64_t> text(Generator& rng, std::int64_t length, std::int64_t vocab) {
  constexpr std::int64_t kSteps[] = {1, 2, 5, 11};
  const Tensor steps = rng.randint(0, 4, {length});
  std::vector<std::int64_t> ids;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back(at = (at + kSteps[steps.data<std::int64_t>()[i]]) % vocab);
  return ids;
}

TEST(GoldenTrain, TwoHundredStepsFollowPyTorchsLossCurve) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);  // so small a model gains nothing by more
  for (const Case& c : golden::cases("train", "curve")) {
    Generator rng(static_cast<std::uint64_t>(c.config.integer("seed")), DropoutFlavour::native);
    GPT model(config_of(c.config), rng);
    model.train();
    AdamW optimizer(model.parameters(), {.weight_decay = c.config.real("decay")});
    const std::int64_t steps = c.config.integer("steps"), batch = c.config.integer("batch"),
                       tokens = c.config.integer("tokens");
    const CosineSchedule schedule{c.config.real("peak"), c.config.real("floor"), c.config.integer("warmup"), steps};
    const auto data = text(rng, 4000, model.config().vocab_size);
    const Tensor &losses = c.expected.at("loss"), &norms = c.expected.at("norm");
    ASSERT_EQ(losses.numel(), 200);
    double worst = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      const Tensor starts = rng.randint(0, static_cast<std::int64_t>(data.size()) - tokens, {batch});
      const Tensor ids = Tensor::empty({batch, tokens}, DType::i64),
                   targets = Tensor::empty({batch, tokens}, DType::i64);
      for (std::int64_t i = 0; i < batch * tokens; ++i) {
        const auto at = static_cast<std::size_t>(starts.data<std::int64_t>()[i / tokens] + i % tokens);
        ids.data<std::int64_t>()[i] = data[at];
        targets.data<std::int64_t>()[i] = data[at + 1];
      }
      model.zero_grad();
      const double loss = model.loss(ids, targets);
      model.backward();
      const double norm = gradient_norm(model.parameters());
      optimizer.step(schedule.rate(step), clip_factor(norm, c.config.real("clip")));
      worst = std::max(worst, std::abs(loss - losses.at({step})));
      ASSERT_NEAR(loss, losses.at({step}), 1e-3) << "step " << step << ", " << c.config.line();
      ASSERT_NEAR(norm, norms.at({step}), 1e-2 * norms.at({step})) << "step " << step << ", " << c.config.line();
    }
    RecordProperty("worst_" + c.number, std::to_string(worst));
  }
  omp_set_num_threads(threads);
}

}  // namespace
