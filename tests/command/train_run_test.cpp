// Tests what attn train saves and says, when numbers are not finite and at its end. The steps themselves are in
// tests/train.
#include <regex>

#include "command/command.hpp"
#include "core/testing.hpp"
#include "train/files.hpp"

namespace attn::test {
namespace {

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

// A text of letters that nothing follows from can only be learned by heart.
class TrainToTheEnd : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    std::string letters;
    for (std::uint32_t i = 0, x = 1; i < 400; ++i)
      letters.push_back(static_cast<char>('a' + ((x = x * 1664525 + 1013904223) >> 28)));
    write("text.txt", letters);
  }
  static inline const std::string kSizes =
      "OMP_NUM_THREADS=1 attn train --text text.txt --layers 1 --heads 2 --width 96 --context 16 --batch 16 --steps "
      "300 --warmup 5 --lr 0.002 --eval-every 20 --save-every 50 --out ";
};

TEST_F(TrainToTheEnd, TellsWhenATextIsLearnedByHeartAndKeepsTheBestModel) {
  const Ran ran = run(kSizes + "m.safetensors");
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(ran.out, found, std::regex("the lowest, ([0-9.]+), was at step ([0-9]+): m.best")));
  const std::string step = found[2];
  EXPECT_THAT(ran.err,
              testing::ContainsRegex("overfitting: the validation\\s+loss\\s+was\\s+lowest\\s+at\\s+step\\s+"));
  EXPECT_THAT(ran.err, testing::HasSubstr(found[1].str()));
  EXPECT_THAT(ran.out,
              testing::ContainsRegex("sample, behind the beginning of the held-out part \\([0-9]+\\):\n[a-p]+\\|"));
  // The weights are those that a run has at that step.
  out_of(kSizes + "until.safetensors --until " + step);
  EXPECT_FALSE(std::filesystem::exists(path("until.best.safetensors")));
  const auto best = io::load_state_dict(path("m.best.safetensors")),
             until = io::load_state_dict(path("until.safetensors"));
  ASSERT_EQ(best.size(), until.size());
  for (const auto& [name, value] : best) EXPECT_EQ(difference(value, until.at(name)), 0) << name;
  EXPECT_GT(difference(best.begin()->second, io::load_state_dict(path("m.safetensors")).begin()->second), 0);
}

TEST_F(TrainToTheEnd, ResumedRunsKeepTheSame) {
  out_of(kSizes + "m.safetensors");
  for (const char* until : {"20", "110", "250"}) {
    const std::string name = std::string("r") + until;
    out_of(kSizes + name + ".safetensors --until " + until);
    const Ran ran = run("OMP_NUM_THREADS=1 attn train --text text.txt --save-every 50 --resume --out " + name +
                        ".safetensors --json");
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_THAT(ran.err, testing::HasSubstr(name + ".best.safetensors has its weights"));
    for (const char* end : {".safetensors", ".best.safetensors", ".training.safetensors", ".svg"}) {
      EXPECT_EQ(read(path("m" + std::string(end))), read(path(name + end))) << name << end;
    }
  }
  // Another run in its place leaves no older best model.
  out_of(kSizes + "m.safetensors --force --until 20");
  EXPECT_FALSE(std::filesystem::exists(path("m.best.safetensors")));
}

}  // namespace
}  // namespace attn::test
