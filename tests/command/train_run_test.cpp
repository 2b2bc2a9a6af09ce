// Steps that are not finite: what they change, and that no such weight is saved.
#include <gmock/gmock.h>

#include "command/command.hpp"
#include "core/testing.hpp"
#include "train/files.hpp"

namespace {

using namespace attn;
using namespace attn::test;
using tool::Training, tool::TrainingFiles;

class TrainRun : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    std::string words;
    for (int i = 0; i < 200; ++i) words += "query key value ";
    write("text.txt", words);
    tool::TrainSettings settings;
    settings.model = {.vocab_size = 256, .context_length = 8, .layers = 1, .heads = 2, .width = 8, .dropout = 0.1};
    settings.train.batch = 2;
    settings.train.steps = 10;
    training_ = std::make_unique<Training>(settings, std::vector<std::string>{path("text.txt")}, ByteTokenizer());
    run_ = &training_->trainer;
  }

  float& weight() { return training_->model->module().parameters()[0]->value.data<float>()[0]; }
  std::map<std::string, Tensor> saved() {
    training_->checkpoint().save(path("state.safetensors"));
    std::map<std::string, Tensor> state;
    for (auto& [name, tensor] : io::load(path("state.safetensors")).tensors) state.emplace(name, tensor);
    return state;
  }

  std::unique_ptr<Training> training_;
  Trainer* run_ = nullptr;
};

TEST_F(TrainRun, AStepThatIsNotFiniteChangesNothingButTheGenerator) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(run_->step().finite());
  const auto before = saved();
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const float good = std::exchange(weight(), poison);
    EXPECT_FALSE(run_->finite());
    EXPECT_FALSE(run_->step().finite());
    weight() = good;
  }
  EXPECT_EQ(run_->steps_done(), 3);
  EXPECT_THAT(run_->skipped(), testing::ElementsAre(4, 4));
  const auto after = saved();
  for (const auto& [name, tensor] : before) {
    if (name == "skipped") continue;
    EXPECT_EQ(identical(tensor, after.at(name)), name != "generator") << name;
  }
  // It goes on, and a resumed run knows of them.
  EXPECT_TRUE(run_->step().finite());
  EXPECT_EQ(run_->losses().size(), 4u);
  saved();
  const Training resumed(TrainCheckpoint::load(path("state.safetensors")), {path("text.txt")}, ByteTokenizer());
  EXPECT_THAT(resumed.trainer.skipped(), testing::ElementsAre(4, 4));
}

TEST_F(TrainRun, WeightsThatAreNotFiniteAreNeverSaved) {
  TrainingFiles to(path("m.safetensors"), false, "");
  to.save(*training_);
  const auto before = files();
  weight() = std::numeric_limits<float>::infinity();
  expect_error(Error::Kind::data, {"weights", "after step 0", "is still the checkpoint of step 0"},
               [&] { to.save(*training_); });
  EXPECT_EQ(files(), before);
}

TEST_F(TrainRun, TheErrorOfADivergenceSaysWhatIsKept) {
  TrainingFiles to(path("m.safetensors"), false, "");
  EXPECT_THAT(to.diverged("loss nan").what(), testing::HasSubstr("found loss nan; nothing was saved yet; train with"));
  to.save(*training_);
  EXPECT_THAT(to.diverged("loss nan", ", or not").what(),
              testing::HasSubstr("of step 0; train with a smaller --lr or --clip, or not"));
}

}  // namespace
