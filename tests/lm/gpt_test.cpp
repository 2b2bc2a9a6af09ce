// Tests what the language model promises beside its numbers: shapes, errors, the same bits, dropout, sizes by name.
#include <omp.h>

#include <limits>

#include "attn/cross_entropy.hpp"
#include "attn/optim.hpp"
#include "lm/gpt_double.hpp"

namespace attn::test {
namespace {

GPTConfig small() {
  GPTConfig config;
  config.vocab_size = 11, config.context_length = 8, config.layers = 2, config.heads = 2, config.width = 8;
  return config;
}

TEST(Gpt, SizesByName) {
  struct Size {
    const char* name;
    std::int64_t layers, heads, width, parameters;
  };
  // Parameter counts of Hugging Face's gpt2, gpt2-medium, gpt2-large and gpt2-xl.
  for (const Size& s : {Size{"117M", 12, 12, 768, 124439808}, Size{"345M", 24, 16, 1024, 354823168},
                        Size{"762M", 36, 20, 1280, 774030080}, Size{"1.5B", 48, 25, 1600, 1557611200}}) {
    const GPTConfig c = gpt2(s.name);
    EXPECT_EQ(c.layers, s.layers);
    EXPECT_EQ(c.heads, s.heads);
    EXPECT_EQ(c.width, s.width);
    EXPECT_EQ(c.vocab_size, 50257);
    EXPECT_EQ(c.context_length, 1024);
    const std::int64_t block = 12 * s.width * s.width + 13 * s.width;
    EXPECT_EQ((50257 + 1024) * s.width + s.layers * block + 2 * s.width, s.parameters) << s.name;
  }
  expect_error(Error::Kind::argument, {"117M", "2B"}, [] { gpt2("2B"); });
}

TEST(Gpt, ParametersAreNamedAsHuggingFaces) {
  Generator rng(1);
  GPTConfig config = small();
  config.layers = 1;
  std::vector<std::string> names;
  std::int64_t count = 0;
  GPT model(config, rng);
  for (const Parameter* p : model.parameters()) names.push_back(p->name), count += p->value.numel();
  EXPECT_THAT(names, testing::ElementsAre("wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias",
                                          "h.0.attn.W_query.weight", "h.0.attn.W_query.bias", "h.0.attn.W_key.weight",
                                          "h.0.attn.W_key.bias", "h.0.attn.W_value.weight", "h.0.attn.W_value.bias",
                                          "h.0.attn.out_proj.weight", "h.0.attn.out_proj.bias", "h.0.ln_2.weight",
                                          "h.0.ln_2.bias", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias",
                                          "h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"));
  EXPECT_EQ(count, (11 + 8) * 8 + 12 * 64 + 13 * 8 + 16);
  config.tied = false;
  EXPECT_EQ(GPT(config, rng).parameters().back()->name, "lm_head.weight");
}

TEST(Gpt, ZerosDrawNothing) {
  Generator rng(5), same(5);
  GPTConfig config = small();
  GPT model(config, rng, Initial::zeros);
  EXPECT_EQ(rng.next_u32(), same.next_u32());
  Generator other(6);
  GPT drawn(small(), other);
  model.load_state_dict(drawn.state_dict());
  const Tensor ids = integers({1, 2, 3});
  EXPECT_TRUE(identical(model.forward(ids), drawn.forward(ids)));
}

TEST(Gpt, LogitsWithAndWithoutABatchAndAloneInIt) {
  Generator rng(1);
  GPT model(small(), rng);
  const Tensor ids = rng.randint(0, 11, {3, 5});
  const Tensor all = model.forward(ids);
  EXPECT_EQ(all.shape(), (Shape{3, 5, 11}));
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(identical(model.forward(ids.select(0, i)), all.select(0, i))) << "a text's logits, whatever is beside";
  }
  // Nothing of the future: shorter texts give the same rows.
  const Tensor first = model.forward(ids.slice(1, 0, 2));
  expect_close(first, all.slice(1, 0, 2), 1e-6, "prefix");
}

TEST(Gpt, TheSameBitsForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  GPTConfig config;
  config.vocab_size = 300, config.context_length = 40, config.layers = 2, config.heads = 3, config.width = 48;
  config.dropout = 0.1;
  std::vector<std::vector<Tensor>> runs;
  std::vector<double> losses;
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    Generator rng(3, DropoutFlavour::philox);
    GPT model(config, rng);
    model.train();
    AdamW optimizer(model.parameters());
    for (int step = 0; step < 3; ++step) {
      const Tensor ids = rng.randint(0, 300, {20, 40}), targets = rng.randint(0, 300, {20, 40});
      model.zero_grad();
      losses.push_back(model.loss(ids, targets));
      model.backward();
      optimizer.step(1e-3, clip_factor(gradient_norm(model.parameters()), 1));
    }
    std::vector<Tensor> weights;
    for (const Parameter* p : model.parameters()) weights.push_back(p->value);
    runs.push_back(weights);
  }
  omp_set_num_threads(threads);
  for (std::size_t run = 1; run < runs.size(); ++run) {
    for (std::size_t i = 0; i < runs[0].size(); ++i) EXPECT_TRUE(identical(runs[0][i], runs[run][i])) << i;
    for (std::size_t step = 0; step < 3; ++step) EXPECT_EQ(losses[step], losses[3 * run + step]);
  }
}

TEST(Gpt, LowerPrecisionsAreNearAndRepeat) {
  GPTConfig config = small();
  config.width = 64, config.context_length = 32;
  struct Pass {
    double loss;
    std::vector<Tensor> grads;
  };
  const auto pass = [&](Precision precision) {
    Generator rng(1);
    config.precision = precision;
    GPT model(config, rng);
    const Tensor ids = rng.randint(0, 11, {4, 32}), targets = rng.randint(0, 11, {4, 32});
    Pass made{model.loss(ids, targets), {}};
    model.backward();
    for (const Parameter* p : model.parameters()) made.grads.push_back(p->grad);
    return made;
  };
  const Pass exact = pass(Precision::highest);
  for (const auto& [precision, tolerance] : {std::pair{Precision::high, 4e-5}, {Precision::medium, 1e-2}}) {
    const Pass got = pass(precision), again = pass(precision);
    EXPECT_NEAR(got.loss, exact.loss, tolerance);
    EXPECT_EQ(got.loss, again.loss);
    for (std::size_t i = 0; i < exact.grads.size(); ++i) {
      expect_close(got.grads[i], exact.grads[i], tolerance, std::string(name(precision)) + " " + std::to_string(i), 1);
      EXPECT_TRUE(identical(got.grads[i], again.grads[i]));
    }
  }
}

TEST(Gpt, LossInPartsIsTheLoss) {
  // A vocabulary so large that loss() computes the logits in parts, of 1024 rows.
  Generator rng(1);
  GPTConfig config = small();
  config.vocab_size = 40000, config.context_length = 300, config.layers = 1, config.width = 4, config.heads = 1;
  GPT model(config, rng);
  const Tensor ids = rng.randint(0, 40000, {4, 300}), targets = rng.randint(0, 40000, {4, 300});
  const double loss = model.loss(ids, targets);
  model.backward();
  std::vector<Tensor> grads;
  for (const Parameter* p : model.parameters()) grads.push_back(p->grad);
  EXPECT_EQ(model.evaluate(ids, targets), loss);
  const Tensor logits = model.forward(ids);
  EXPECT_NEAR(cross_entropy(logits, targets).loss, loss, 1e-6);
  cross_entropy_in_place(logits, targets, 1.0 / 1200);
  model.zero_grad();
  model.backward(logits);
  const auto all = model.parameters();
  for (std::size_t i = 0; i < all.size(); ++i) expect_close(grads[i], all[i]->grad, 1e-6, all[i]->name, 1);
}

TEST(Gpt, FactorsOfBackwardAddUp) {
  Generator rng(1);
  GPT model(small(), rng);
  const Tensor ids = integers({1, 2, 3, 4}), targets = integers({2, 3, 4, 5});
  const auto grads = [&](std::initializer_list<double> factors) {
    model.zero_grad();
    for (const double factor : factors) model.loss(ids, targets), model.backward(factor);
    std::vector<Tensor> all;
    for (const Parameter* p : model.parameters()) all.push_back(p->grad);
    return all;
  };
  const auto whole = grads({1}), halves = grads({0.5, 0.5});
  for (std::size_t i = 0; i < whole.size(); ++i) expect_close(halves[i], whole[i], 1e-7, std::to_string(i), 1);
}

// Three batches with 5, 2 and 0 targets, each weighed by its share of all: the gradients of one batch of the three.
TEST(Gpt, BatchesWithUnequalTargetsAddUpToOne) {
  Generator rng(3);
  GPT model({.vocab_size = 7, .context_length = 6, .layers = 1, .heads = 2, .width = 8}, rng);
  const Tensor ids = rng.randint(0, 7, {3, 6});
  Tensor targets = Tensor::full({3, 6}, -100, DType::i64);
  for (std::int64_t i = 0; i < 5; ++i) targets.set({0, i}, static_cast<double>(i));
  targets.set({1, 0}, 6), targets.set({1, 5}, 2);
  const auto gradients = [&] {
    std::vector<Tensor> all;
    for (const Parameter* p : model.parameters()) all.push_back(p->grad.clone());
    return all;
  };
  const double whole_loss = model.loss(ids, targets);
  EXPECT_EQ(model.target_count(), 7);
  model.backward();
  const std::vector<Tensor> whole = gradients();
  model.zero_grad();
  double loss = 0;
  for (std::int64_t i = 0; i < 3; ++i) {
    const double own = model.loss(ids.slice(0, i, i + 1), targets.slice(0, i, i + 1));
    EXPECT_EQ(model.target_count(), i == 0 ? 5 : i == 1 ? 2 : 0);
    EXPECT_EQ(own == 0, i == 2);  // PyTorch has NaN there
    const double share = static_cast<double>(model.target_count()) / 7;
    model.backward(share);
    loss += own * share;
  }
  EXPECT_NEAR(loss, whole_loss, 1e-6);
  const std::vector<Tensor> parts = gradients();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    expect_close(parts[i], whole[i], 2e-7, model.parameters()[i]->name, 1);
  }
  model.evaluate(ids.slice(0, 1, 2), targets.slice(0, 1, 2));
  EXPECT_EQ(model.target_count(), 2);
}

TEST(Gpt, IgnoredTargetsGiveNoGradient) {
  Generator rng(1);
  GPT model(small(), rng);
  EXPECT_EQ(model.loss(integers({1, 2}), integers({-100, -100})), 0);
  model.backward();
  for (const Parameter* p : model.parameters()) {
    for (const double g : values(p->grad)) EXPECT_EQ(g, 0) << p->name;
  }
}

TEST(Gpt, DropoutActsInTrainModeOnly) {
  for (const auto flavour : {DropoutFlavour::mkl, DropoutFlavour::native, DropoutFlavour::philox}) {
    Generator rng(1, flavour);
    GPTConfig config = small();
    config.dropout = 0.5;
    GPT model(config, rng);
    const Tensor ids = integers({1, 2, 3, 4});
    const Tensor plain = model.forward(ids);
    EXPECT_TRUE(identical(model.forward(ids), plain));
    model.train();
    EXPECT_FALSE(identical(model.forward(ids), plain));
    EXPECT_FALSE(identical(model.forward(ids), model.forward(ids)));
    model.eval();
    EXPECT_TRUE(identical(model.forward(ids), plain));
  }
}

TEST(Gpt, ATraceNamesTheSteps) {
  Generator rng(1);
  GPT model(small(), rng);
  Trace trace;
  model.forward(integers({1, 2, 3}), &trace);
  EXPECT_EQ(trace["h.1.attn.weights"].shape(), (Shape{1, 2, 3, 3}));
  EXPECT_EQ(trace["h.0.output"].shape(), (Shape{1, 3, 8}));
}

TEST(Gpt, Errors) {
  Generator rng(1);
  GPT model(small(), rng);
  expect_error(Error::Kind::argument, {"[0, 11)", "11"}, [&] { model.forward(integers({1, 11})); });
  expect_error(Error::Kind::argument, {"-1"}, [&] { model.forward(integers({-1})); });
  expect_error(Error::Kind::shape, {"1 to 8 tokens"}, [&] { model.forward(Tensor::zeros({9}, DType::i64)); });
  expect_error(Error::Kind::shape, {"1 to 8 tokens"}, [&] { model.forward(Tensor::zeros({2, 0}, DType::i64)); });
  expect_error(Error::Kind::shape, {"1 to 8 tokens"}, [&] { model.forward({}); });
  expect_error(Error::Kind::dtype, {"int64"}, [&] { model.forward(Tensor::zeros({3})); });
  expect_error(Error::Kind::argument, {"loss() before backward()"}, [&] { model.backward(); });
  expect_error(Error::Kind::argument, {"forward() before backward()"}, [&] {
    GPT(small(), rng).backward(Tensor::ones({1, 11}));
  });
  expect_error(Error::Kind::shape, {"targets"}, [&] { model.loss(integers({1, 2}), integers({1})); });
  expect_error(Error::Kind::argument, {"-100 to ignore", "12"}, [&] {
    model.loss(integers({1, 2}), integers({1, 12}));
  });
  model.forward(integers({1, 2}));
  expect_error(Error::Kind::shape, {"d_logits"}, [&] { model.backward(Tensor::ones({3, 11})); });
  for (const auto change :
       {&GPTConfig::vocab_size, &GPTConfig::context_length, &GPTConfig::layers, &GPTConfig::heads, &GPTConfig::width}) {
    GPTConfig config = small();
    config.*change = 0;
    expect_error(Error::Kind::argument, {"at least 1"}, [&] { GPT(config, rng); });
  }
  GPTConfig config = small();
  config.heads = 3;
  EXPECT_THROW(GPT(config, rng), Error);
  config = small(), config.dropout = 1.5;
  EXPECT_THROW(GPT(config, rng), Error);
  config = small(), config.epsilon = 0;
  EXPECT_THROW(GPT(config, rng), Error);
}

TEST(Gpt, FiniteInFiniteOut) {
  const auto largest = static_cast<double>(std::numeric_limits<float>::max());
  LayerNorm norm(4);
  for (const auto& row : {std::vector<double>{largest, -largest, largest, -largest},
                          {largest, largest, largest, largest},
                          {1e30, 2e30, 3e30, 4e30},
                          {0, 0, 0, 0},
                          {1e-40, 0, 0, 1e-40}}) {
    const Tensor x = tensor(row, {1, 4}, DType::f32);
    expect_finite(norm.forward(x), "layer norm");
    expect_finite(norm.backward(Tensor::ones({1, 4})).x, "its gradient");
  }
  const Tensor logits = tensor({largest, -largest, 0}, {1, 3}, DType::f32);
  for (std::int64_t target = 0; target < 3; ++target) {
    EXPECT_TRUE(std::isfinite(cross_entropy(logits, integers({target})).loss));
    const Tensor gradient = logits.clone();
    cross_entropy_in_place(gradient, integers({target}), 1);
    expect_finite(gradient, "its gradient");
  }
}

TEST(Gpt, HiddenStatesThatFitNoBlockAreRefused) {
  Generator rng(1);
  GPT model({.vocab_size = 7, .context_length = 4, .layers = 2, .heads = 1, .width = 4}, rng);
  const Tensor x = Tensor::ones({1, 4, 4});
  expect_error(Error::Kind::shape, {"blocks", "into 5"}, [&] { model.hidden_from(5, x); });
  for (const Shape& shape : {Shape{4, 4}, {1, 5, 4}, {1, 4, 3}, {}}) {
    expect_error(Error::Kind::shape, {"x (batch, tokens, width)", shape.str()},
                 [&] { model.hidden_from(0, Tensor::ones(shape)); });
  }
  EXPECT_EQ(model.hidden_from(2, x).shape(), x.shape());
}

}  // namespace
}  // namespace attn::test
