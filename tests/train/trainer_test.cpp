// The trainer as a part of a program: what it repeats, resumes, shares among ranks, saves, and refuses.
#include "attn/io.hpp"
#include "core/folder.hpp"
#include "core/threads.hpp"
#include "train/helpers.hpp"

namespace attn::test {
namespace {

using testing::HasSubstr;

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(identical(a[i], b[i])) << i;
}

TEST(Trainer, LearnsAndTellsOfEachStep) {
  Trained run;
  std::vector<Trainer::Step> steps;
  run.trainer.run([&](const Trainer::Step& step) { steps.push_back(step); });
  ASSERT_EQ(steps.size(), 9u);
  EXPECT_NEAR(steps.front().loss, std::log(double{kVocab}), 0.2);
  EXPECT_LT(steps.back().loss, steps.front().loss - 0.2);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].number, static_cast<std::int64_t>(i + 1));
    EXPECT_EQ(steps[i].loss, run.trainer.losses()[i]);
    EXPECT_EQ(steps[i].validation.has_value(), i == 3 || i == 7 || i == 8) << i;
  }
  EXPECT_EQ(run.trainer.validations().back(), std::pair(std::int64_t{9}, *steps.back().validation));
  EXPECT_EQ(*steps.back().validation, run.trainer.validate());
}

// torch.optim.lr_scheduler of PyTorch 2.15: SequentialLR(LinearLR(start_factor=1/4, total_iters=3),
// CosineAnnealingLR(T_max=8, eta_min=0.001), milestones=[4]) on a rate of 0.01, and CosineAnnealingLR(6) alone.
TEST(Trainer, LearningRatesArePyTorchs) {
  const auto rates = [](std::int64_t steps, std::int64_t warmup) {
    TrainConfig config = kConfig;
    config.steps = steps, config.warmup = warmup;
    std::vector<double> all;
    Trained run(config);
    run.trainer.run([&](const Trainer::Step& step) { all.push_back(step.rate); });
    return all;
  };
  EXPECT_THAT(rates(12, 4),
              testing::Pointwise(testing::DoubleNear(1e-12),
                                 {0.0025, 0.005, 0.0075, 0.01, 0.01, 0.009657457896, 0.008681980515, 0.007222075446,
                                  0.0055, 0.003777924554, 0.002318019485, 0.001342542104}));
  EXPECT_THAT(rates(6, 0), testing::Pointwise(testing::DoubleNear(1e-12),
                                              {0.01, 0.009397114317, 0.00775, 0.0055, 0.00325, 0.001602885683}));
}

TEST(Trainer, ATrialChangesNothing) {
  for (const TrainConfig& config : {kConfig, reproducible()}) {
    Trained plain(config), tried(config);
    for (int i = 0; i < 3; ++i) {
      EXPECT_GT(tried.trainer.trial(), 0);
      plain.trainer.step(), tried.trainer.step();
    }
    expect_same(tried.all(), plain.all());
  }
}

TEST(Trainer, ResumesInTheMiddleBitForBit) {
  const Folder folder;
  const auto file = folder / "state.safetensors";
  for (const TrainConfig& config : {kConfig, reproducible()}) {
    Trained whole(config);
    whole.trainer.run();
    for (const int middle : {0, 1, 5, 9}) {
      Trained begun(config);
      for (int i = 0; i < middle; ++i) begun.trainer.step();
      begun.trainer.save(file);
      Trained resumed(TrainCheckpoint::load(file));
      EXPECT_EQ(resumed.trainer.steps_done(), middle);
      resumed.trainer.run();
      expect_same(resumed.all(), whole.all());
    }
  }
}

TEST(Trainer, TrainsAnyCausalModel) {
  const Folder folder;
  const auto file = folder / "state.safetensors";
  const TrainText text = text_of();
  Generator rng(3), other(4);
  const auto model = llama(), again = llama();
  Trainer trainer(*model, rng, text, kConfig);
  for (int i = 0; i < 4; ++i) trainer.step();
  trainer.save(file);
  trainer.run();
  Trainer resumed(*again, other, text, TrainCheckpoint::load(file));
  resumed.run();
  EXPECT_EQ(resumed.losses(), trainer.losses());
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_TRUE(identical(model->parameters()[i]->value, again->parameters()[i]->value)) << i;
  }
}

// Without dropout the batches of a reproducible run are those of a plain one, however groups are seeded.
TEST(Trainer, AModelThatDropsNothingTakesNoNumberOfTheBatches) {
  Trained plain(kConfig, {}, 0), by_groups(reproducible(), {}, 0);
  for (int i = 0; i < 3; ++i) plain.trainer.step(), by_groups.trainer.step();
  EXPECT_TRUE(identical(plain.trainer.checkpoint().generator, by_groups.trainer.checkpoint().generator));
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_NEAR(plain.trainer.losses()[at], by_groups.trainer.losses()[at], 1e-5);
  }
}

// Of one text over and over, a model that stays as it is loses what its dropout makes of it. The mean over n groups
// whose streams have nothing to do with each other deviates by a root of n less than one group's.
TEST(Trainer, GroupsDropOnTheirOwn) {
  const TrainText same(std::vector<std::int64_t>(600, 5), kContext);
  const auto deviation = [&](std::int64_t groups) {
    TrainConfig config = reproducible();
    config.steps = 60, config.warmup = 0, config.batch = groups, config.lr = config.min_lr = 1e-12;
    Generator rng(7, DropoutFlavour::philox);
    const auto model = gpt(rng, 0.3);
    Trainer trainer(*model, rng, same, config);
    trainer.run();
    double sum = 0, squares = 0;
    for (const double loss : trainer.losses()) sum += loss / 60, squares += loss * loss / 60;
    return std::sqrt(squares - sum * sum);
  };
  const double alone = deviation(1);
  EXPECT_GT(alone, 1e-3);
  EXPECT_NEAR(deviation(16), alone / 4, alone / 8);
}

// To a model of zeros all tokens are equally likely, however batches and the texts of a validation are shared out.
TEST(Trainer, LossesOfAModelOfZerosAreTheLogarithmOfItsVocabulary) {
  const TrainText text = text_of();
  for (const TrainConfig& config : {kConfig, reproducible()}) {
    for (const int ranks : {1, 2, 3}) {
      distributed::run_threads(ranks, [&](distributed::Transport& transport) {
        const Threads own(1);
        for (const Sharding sharding : {Sharding::none, Sharding::weights}) {
          Generator rng(7, DropoutFlavour::philox);
          const auto model = gpt(rng, 0.1);
          for (Parameter* p : model->parameters()) p->value.fill(0);
          Trainer trainer(*model, rng, text, config, {.transport = &transport, .sharding = sharding});
          EXPECT_NEAR(trainer.validate(), std::log(double{kVocab}), 1e-6);
          EXPECT_NEAR(trainer.step().loss, std::log(double{kVocab}), 1e-6);
        }
      });
    }
  }
}

TEST(Trainer, TellsTheNormOfTheMeanGradient) {
  Trained plain(kConfig, {}, 0), by_groups(reproducible(), {}, 0);
  const double norm = plain.trainer.step().norm;
  double squares = 0;
  for (const Parameter* p : plain.model->parameters()) {
    for (const double x : values(p->grad)) squares += x * x;
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-5 * norm);
  EXPECT_GT(norm, 0);
  EXPECT_NEAR(by_groups.trainer.step().norm, norm, 1e-5 * norm);
}

TEST(Trainer, RanksHaveTheBitsOfOneProcessAndGoOnFromEachOthersCheckpoints) {
  const Threads one(1);
  const Folder folder;
  const auto file = [&](int ranks) { return folder / (std::to_string(ranks) + ".safetensors").c_str(); };
  Trained alone(reproducible());
  for (int i = 0; i < 4; ++i) alone.trainer.step();
  alone.trainer.save(file(1));
  alone.trainer.run();
  const auto expected = alone.all();
  int before = 1;
  for (const int ranks : {2, 3, 4}) {
    for (const Sharding sharding : {Sharding::none, Sharding::state, Sharding::weights}) {
      distributed::run_threads(ranks, [&](distributed::Transport& transport) {
        const Threads own(1);
        const TrainRanks shared{.transport = &transport, .sharding = sharding};
        Trained begun(reproducible(), shared);
        for (int i = 0; i < 4; ++i) begun.trainer.step();
        begun.trainer.save(file(ranks));
        Trained resumed(TrainCheckpoint::load(file(before)), shared);
        for (Trained* run : {&begun, &resumed}) {
          run->trainer.run();
          const auto found = run->all();
          if (transport.rank() == 0) expect_same(found, expected);
        }
      });
    }
    before = ranks;
  }
}

TEST(Trainer, RanksThatShareTextsAreNearOneProcess) {
  Trained alone(kConfig, {}, 0);
  alone.trainer.run();
  const TrainBatch first = alone.text.validation(1).front();
  const double expected = alone.model->evaluate(first.ids, first.targets);
  distributed::run_threads(4, [&](distributed::Transport& transport) {
    const Threads own(1);
    for (const Sharding sharding : {Sharding::none, Sharding::weights}) {
      Generator rng(7, DropoutFlavour::philox);
      const auto model = gpt(rng, 0);
      {
        Trainer shared(*model, rng, alone.text, kConfig,
                       {.transport = &transport, .sharding = sharding, .sequence = 2});
        shared.run();
        for (std::size_t i = 0; i < alone.trainer.losses().size(); ++i) {
          EXPECT_NEAR(shared.losses()[i], alone.trainer.losses()[i], 1e-5) << i;
        }
      }
      // The trainer is gone, and with it the part of a text.
      EXPECT_NEAR(model->evaluate(first.ids, first.targets), expected, 1e-5);
    }
  });
}

TEST(Trainer, WhatOneRankCannotWriteIsToldToAll) {
  const Folder folder;
  int told = 0;
  std::mutex one;
  distributed::run_threads(2, [&](distributed::Transport& transport) {
    Trained run(kConfig, {.transport = &transport});
    expect_error(Error::Kind::file, {"rank 0 can write", "none/state"},
                 [&] { run.trainer.save(folder / "none/state.safetensors"); });
    const std::lock_guard lock(one);
    ++told;
  });
  EXPECT_EQ(told, 2);
}

TEST(Trainer, ARunThatDivergesEndsWithItsStep) {
  for (const TrainConfig& config : {kConfig, reproducible()}) {
    Trained run(config);
    for (int i = 0; i < 3; ++i) run.trainer.step();
    float& weight = run.model->parameters()[0]->value.data<float>()[0];
    const auto before = run.all();
    const float good = std::exchange(weight, std::numeric_limits<float>::infinity());
    EXPECT_FALSE(run.trainer.finite());
    expect_error(Error::Kind::data, {"finite loss", "at step 4", "a smaller lr"}, [&] { run.trainer.run(); });
    weight = good;
    EXPECT_TRUE(run.trainer.finite());
    EXPECT_THAT(run.trainer.skipped(), testing::ElementsAre(4));
    const auto after = run.all();
    EXPECT_FALSE(identical(after[0], before[0])) << "the next step has another batch";
    for (std::size_t i = 1; i < before.size(); ++i) EXPECT_TRUE(identical(after[i], before[i])) << i;
    const Folder folder;
    run.trainer.save(folder / "state.safetensors");
    Trained resumed(TrainCheckpoint::load(folder / "state.safetensors"));
    EXPECT_THAT(resumed.trainer.skipped(), testing::ElementsAre(4));
    for (Trained* one : {&run, &resumed}) one->trainer.run();
    expect_same(resumed.all(), run.all());
  }
}

TEST(Divergence, AValidationLossThatIsNotFiniteEndsTheRun) {
  for (const auto then : {Divergence::Then::stop, Divergence::Then::skip}) {
    Divergence divergence(then);
    EXPECT_FALSE(divergence.ends({.number = 3, .loss = 1, .norm = 1, .validation = 1.0}));
    EXPECT_EQ(divergence.ends({.number = 3, .loss = 1.5, .norm = 2, .validation = -kNan}),
              "validation loss nan after step 3, whose loss was 1.5 and gradient norm 2");
  }
}

TEST(Divergence, SkippedStepsEndARunWhenTenFollowEachOther) {
  EXPECT_EQ(Divergence().ends({.number = 5, .loss = 2, .norm = kInf}), "loss 2 and gradient norm inf at step 5");
  Divergence divergence(Divergence::Then::skip);
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 1; i < Divergence::kMost; ++i) EXPECT_FALSE(divergence.ends({.loss = kNan, .norm = 1}));
    EXPECT_FALSE(divergence.ends({.loss = 1, .norm = 1}));
  }
  for (int i = 1; i < Divergence::kMost; ++i) EXPECT_FALSE(divergence.ends({.loss = 1, .norm = kInf}));
  EXPECT_THAT(*divergence.ends({.loss = 1, .norm = kInf}), HasSubstr("10 batches in a row"));
}

// Held-out tokens must not become ones to train on, and dropout is drawn as before.
TEST(Trainer, GoesOnWithATextThatIsCutAsBeforeAlone) {
  const Folder folder;
  const auto file = folder / "state.safetensors";
  Trained begun;
  begun.trainer.step();
  begun.trainer.save(file);
  std::vector<std::int64_t> ids;
  const Tensor steps = Generator(1).randint(1, 3, {600});
  for (std::int64_t i = 0, at = 0; i < 600; ++i) ids.push_back(at = (at + steps.data<std::int64_t>()[i]) % kVocab);
  const auto resume = [&](const TrainText& text, DropoutFlavour flavour = DropoutFlavour::philox) {
    Generator rng(1, flavour);
    const auto model = gpt(rng, 0.1);
    Trainer(*model, rng, text, TrainCheckpoint::load(file));
  };
  resume(TrainText(ids, kContext));
  const auto refused = [&](const char* part, const auto& call) { expect_error(Error::Kind::data, {part}, call); };
  refused("found texts of 8 tokens, and 300 tokens to train on", [&] { resume(TrainText(ids, kContext, 0.5)); });
  refused("found texts of 4 tokens", [&] { resume(TrainText(ids, 4)); });
  refused("philox; found mkl", [&] { resume(TrainText(ids, kContext), DropoutFlavour::mkl); });
}

TEST(Trainer, RefusesWhatMakesNoRun) {
  const auto refused = [](const char* member, const std::string& expected, const TrainConfig& config) {
    expect_error(Error::Kind::argument, {member, expected}, [&] { Trained{config}; });
  };
  const auto with = [](auto&& change) {
    TrainConfig config = kConfig;
    change(config);
    return config;
  };
  refused("[TrainConfig::steps]", "at least 1; found 0", with([](auto& c) { c.steps = 0; }));
  refused("[TrainConfig::batch]", "at least 1; found -1", with([](auto& c) { c.batch = -1; }));
  refused("[TrainConfig::eval_every]", "at least 1", with([](auto& c) { c.eval_every = 0; }));
  refused("[TrainConfig::warmup]", "at least 0", with([](auto& c) { c.warmup = -1; }));
  refused("[TrainConfig::lr]", "below 1000; found 1e+20", with([](auto& c) { c.lr = 1e20; }));
  refused("[TrainConfig::lr]", "found nan", with([](auto& c) { c.lr = kNan; }));
  refused("[TrainConfig::min_lr]", "from 0 to TrainConfig::lr; found 1", with([](auto& c) { c.min_lr = 1; }));
  refused("[TrainConfig::clip]", "at least 0; found nan", with([](auto& c) { c.clip = kNan; }));
  distributed::run_threads(3, [&](distributed::Transport& transport) {
    const TrainRanks ranks{.transport = &transport};
    expect_error(Error::Kind::argument, {"[TrainConfig::batch]", "the 3 ranks"},
                 [&] { Trained(with([](auto& c) { c.batch = 4; }), ranks); });
    TrainRanks cut = ranks;
    cut.sequence = 2;
    expect_error(Error::Kind::argument, {"[TrainRanks::sequence]", "a divisor of the 3 ranks"},
                 [&] { Trained(kConfig, cut); });
  });
}

TEST(Trainer, RefusesAModelThatCannotReadTheText) {
  const auto refused = [](const char* says, std::int64_t vocab, std::int64_t context) {
    Generator rng(1);
    GPT model({.vocab_size = vocab, .context_length = context, .layers = 1, .heads = 1, .width = 4}, rng);
    const TrainText text = text_of();
    expect_error(Error::Kind::argument, {says}, [&] { Trainer(model, rng, text, kConfig); });
  };
  refused("context_length = 7; found 8", kVocab, kContext - 1);
  refused("vocabulary, from 0 to 38; found 39", kVocab - 1, kContext);
}

}  // namespace
}  // namespace attn::test
