// Steps that are not finite: what they change, and that no such weight is saved.
#include <gmock/gmock.h>

#include "command/command.hpp"
#include "core/testing.hpp"
#include "train/divergence.hpp"

namespace {

using namespace attn;
using namespace attn::test;
using tool::Divergence, tool::Text, tool::TrainingFiles;

class TrainRun : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    std::string words;
    for (int i = 0; i < 200; ++i) words += "query key value ";
    write("text.txt", words);
    text_.emplace(std::vector<std::string>{path("text.txt")}, ByteTokenizer(), 0.1, 8);
    settings_.model = {.vocab_size = 256, .context_length = 8, .layers = 1, .heads = 2, .width = 8, .dropout = 0.1};
    settings_.batch = 2;
    settings_.steps = 10;
    run_ = std::make_unique<tool::Run>(settings_, *text_);
  }

  float& weight() { return run_->model().module().parameters()[0]->value.data<float>()[0]; }
  std::map<std::string, Tensor> saved() {
    run_->save(path("state.safetensors"));
    std::map<std::string, Tensor> state;
    for (auto& [name, tensor] : io::load(path("state.safetensors")).tensors) state.emplace(name, tensor);
    return state;
  }

  std::optional<Text> text_;
  tool::TrainSettings settings_;
  std::unique_ptr<tool::Run> run_;
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
  std::optional<Text> text;
  const auto resumed = tool::Run::resume(path("state.safetensors"), {path("text.txt")}, ByteTokenizer(), text);
  EXPECT_THAT(resumed->skipped(), testing::ElementsAre(4, 4));
}

TEST_F(TrainRun, WeightsThatAreNotFiniteAreNeverSaved) {
  TrainingFiles to(path("m.safetensors"), false, "");
  to.save(*run_);
  const auto before = files();
  weight() = std::numeric_limits<float>::infinity();
  expect_error(Error::Kind::data, {"weights", "after step 0", "is still the checkpoint of step 0"},
               [&] { to.save(*run_); });
  EXPECT_EQ(files(), before);
}

TEST_F(TrainRun, AValidationLossThatIsNotFiniteEndsTheRun) {
  const TrainingFiles to(path("m.safetensors"), false, "");
  for (const auto then : {Divergence::Then::stop, Divergence::Then::skip}) {
    Divergence divergence(then, to);
    EXPECT_NO_THROW(divergence.check({.loss = 1, .norm = 1, .validation = 1.0}, *run_));
    expect_error(Error::Kind::data, {"validation loss nan", "nothing was saved"},
                 [&] { divergence.check({.loss = 1, .norm = 1, .validation = kNan}, *run_); });
  }
}

TEST_F(TrainRun, TenInARowEndTheRun) {
  const TrainingFiles to(path("m.safetensors"), false, "");
  Divergence divergence(Divergence::Then::skip, to);
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 1; i < Divergence::kMost; ++i) divergence.check({.loss = kNan, .norm = 1}, *run_);
    divergence.check({.loss = 1, .norm = 1}, *run_);
  }
  for (int i = 1; i < Divergence::kMost; ++i) divergence.check({.loss = 1, .norm = kInf}, *run_);
  expect_error(Error::Kind::data, {"10 batches"}, [&] { divergence.check({.loss = 1, .norm = kInf}, *run_); });
}

}  // namespace
