// Checkpoints of the trainer: what they keep, and what of a file they refuse.
#include "attn/io.hpp"
#include "core/folder.hpp"
#include "train/helpers.hpp"

namespace attn::test {
namespace {

using testing::HasSubstr;

TEST(TrainCheckpoint, KeepsTheConfigAndWhatItsCallerAdds) {
  const Folder folder;
  const auto file = folder / "state.safetensors";
  TrainConfig config = kConfig;
  config.clip = 0.25, config.optimizer = {.beta1 = 0.8, .beta2 = 0.7, .epsilon = 1e-6, .weight_decay = 0.3};
  Trained run(config);
  run.trainer.save(file, {{"settings", R"({"mine":[1,2],"steps":3})"}, {"note", "a text"}});
  const TrainCheckpoint found = TrainCheckpoint::load(file);
  EXPECT_EQ(found.metadata.at("note"), "a text");
  EXPECT_THAT(found.metadata.at("settings"), HasSubstr(R"({"mine":[1,2],"steps":9,)"));
  EXPECT_EQ(found.config.steps, 9);
  EXPECT_EQ(found.config.batch, 12);
  EXPECT_EQ(found.config.warmup, 2);
  EXPECT_EQ(found.config.eval_every, 4);
  EXPECT_EQ(found.config.lr, 0.01);
  EXPECT_EQ(found.config.min_lr, 0.001);
  EXPECT_EQ(found.config.clip, 0.25);
  EXPECT_FALSE(found.config.reproducible);
  EXPECT_EQ(found.config.optimizer.beta1, 0.8);
  EXPECT_EQ(found.config.optimizer.beta2, 0.7);
  EXPECT_EQ(found.config.optimizer.epsilon, 1e-6);
  EXPECT_EQ(found.config.optimizer.weight_decay, 0.3);
}

TEST(TrainCheckpoint, RefusesMetadataThatItWouldReplace) {
  const Folder folder;
  const auto file = folder / "state.safetensors";
  Trained run;
  for (const char* settings : {"nope", "[1]", "3", "{\"a\":\"\xff\"}"}) {
    expect_error(Error::Kind::argument, {"settings that are a JSON object"}, [&] {
      run.trainer.save(file, {{"settings", settings}});
    });
  }
  expect_error(Error::Kind::argument, {"no metadata text", "mine"}, [&] {
    run.trainer.save(file, {{"text", "mine"}});
  });
  EXPECT_FALSE(std::filesystem::exists(file));
  run.trainer.save(file);
  TrainCheckpoint::load(file).save(file);  // whose metadata has both
}

// Files of before these settings were kept; the optimizer's are PyTorch's.
TEST(TrainCheckpoint, WithoutLaterSettingsHasTheUsualOnes) {
  const Folder folder;
  const auto file = folder / "state.safetensors";
  Trained().trainer.save(file);
  io::NamedTensors old = io::load(file);
  old.metadata["settings"] = R"({"steps":9,"batch":12,"lr":0.01,"min-lr":0.001,"warmup":2,"weight-decay":0.3,)"
                             R"("beta2":0.7,"clip":0.25,"eval-every":4})";
  io::save_safetensors(file, old);
  const TrainConfig config = TrainCheckpoint::load(file).config;
  EXPECT_EQ(config.clip, 0.25);
  EXPECT_EQ(config.optimizer.beta1, 0.9);
  EXPECT_EQ(config.optimizer.epsilon, 1e-8);
  EXPECT_FALSE(config.reproducible);
}

TEST(TrainCheckpoint, RefusesAnotherTextModelOrFile) {
  const Folder folder;
  const auto file = folder / "state.safetensors";
  Trained run;
  for (int i = 0; i < 5; ++i) run.trainer.step();
  run.trainer.save(file);
  const TrainCheckpoint good = TrainCheckpoint::load(file);
  const TrainText text = text_of(), other = text_of(2);
  expect_error(Error::Kind::data, {"the text that", "another"}, [&] { Trainer(*run.model, run.rng, other, good); });
  const auto another = llama();
  expect_error(Error::Kind::data, {"model.embed_tokens.weight"}, [&] { Trainer(*another, run.rng, text, good); });

  const io::NamedTensors whole = io::load(file);
  const auto refused = [&](const std::vector<std::string>& parts, const std::function<void(io::NamedTensors&)>& lie) {
    io::NamedTensors lied = whole;
    lie(lied);
    io::save_safetensors(file, lied);
    expect_error(Error::Kind::data, parts, [&] { Trainer(*run.model, run.rng, text, TrainCheckpoint::load(file)); });
  };
  const auto set = [&](const char* name, std::vector<double> numbers) {
    return [name, numbers](io::NamedTensors& lied) {
      for (auto& [own, tensor] : lied.tensors) {
        if (own == name)
          tensor = Tensor::from(std::span<const double>(numbers), {static_cast<std::int64_t>(numbers.size())});
      }
    };
  };
  refused({"a checkpoint of attn train"}, [](auto& lied) { lied.metadata.erase("text"); });
  refused({"the settings of a training run"}, [](auto& lied) { lied.metadata["settings"] = R"({"steps":1e300})"; });
  refused({"curves of the steps"}, set("losses", {1, 2, 3}));
  refused({"curves of the steps"}, set("validation.step", {6}));
  refused({"numbers of steps in validation.step"}, set("validation.step", {1e300}));
  refused({"numbers of steps in validation.step"}, set("validation.step", {kNan}));
  refused({"1 validation losses"}, set("validation.loss", {1, 2}));
  refused({"curves of the steps"}, set("skipped", {0}));
  for (const char* gone : {"generator", "losses", "validation.step", "optimizer.exp_avg_sq.wte.weight"}) {
    refused({std::string(gone).substr(std::string(gone).rfind("exp_avg") == std::string::npos ? 0 : 10)},
            [&](auto& lied) { std::erase_if(lied.tensors, [&](const auto& one) { return one.first == gone; }); });
  }
}

}  // namespace
}  // namespace attn::test
