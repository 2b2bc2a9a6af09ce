// What attn train saves and says when numbers are not finite. tests/train has the steps themselves.
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
    const auto make = [&](Generator& rng) -> LanguageModel { return GPT(settings.model, rng); };
    training_ = std::make_unique<Training>(settings, std::vector<std::string>{path("text.txt")}, ByteTokenizer(), make);
    run_ = &training_->trainer;
  }

  float& weight() { return training_->model.parameters()[0]->value.data<float>()[0]; }
  std::unique_ptr<Training> training_;
  Trainer* run_ = nullptr;
};

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
