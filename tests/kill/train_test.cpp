// attn train, killed at any moment and resumed: bit for bit what a run gives that nobody disturbed.
#include "attn/pretrained.hpp"
#include "kill/kill.hpp"

namespace attn::test {
namespace {

class KillTraining : public KillTest {
 protected:
  void SetUp() override {
    KillTest::SetUp();
    setenv("OMP_WAIT_POLICY", "passive", 1);  // threads that wait leave the processor to others
    write_words();
  }

  // A checkpoint a step, so that most moments find one being written.
  static constexpr const char* kStart =
      "train --text text.txt --layers 1 --heads 2 --width 16 --context 32 --batch 8 --dropout 0.1 --steps 40 "
      "--warmup 5 --lr 0.01 --eval-every 10 --save-every 1 --keep-every 15 --force --out ";
  static constexpr const char* kResume = "train --text text.txt --resume --save-every 1 --keep-every 15 --out ";

  Files result(const std::string& name) const {
    Files all;
    for (const char* end : {".safetensors", ".training.safetensors", ".best.safetensors", ".step-15.safetensors",
                            ".step-30.safetensors", ".svg"}) {
      if (std::filesystem::exists(path(name + end))) all[end] = read(path(name + end));
    }
    return all;
  }
  bool has_checkpoint() const { return std::filesystem::exists(path("m.training.safetensors")); }

  // Each file that is there can be read.
  void expect_whole() const {
    if (has_checkpoint()) {
      EXPECT_NO_THROW(io::load(path("m.training.safetensors")));
    }
    if (std::filesystem::exists(path("m.safetensors"))) {
      EXPECT_NO_THROW(load_gpt(path("m.safetensors")));
    }
    if (std::filesystem::exists(path("m.svg"))) {
      EXPECT_THAT(read(path("m.svg")), testing::EndsWith("</svg>\n"));
    }
  }

  void kill_and_resume(int threads);
};

void KillTraining::kill_and_resume(int threads) {
  setenv("OMP_NUM_THREADS", "1", 1);
  double seconds = seconds_of(std::string(kStart) + "whole.safetensors");
  const Files whole = result("whole");
  ASSERT_GE(whole.size(), 5u);  // and a sixth where the last model is not the best
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  const std::vector<std::string> expected{"text.txt",
                                          "whole.safetensors",
                                          "whole.training.safetensors",
                                          "whole.svg",
                                          "m.safetensors",
                                          "m.training.safetensors",
                                          "m.svg",
                                          "m.training.lock",
                                          "m.best.safetensors",
                                          "whole.best.safetensors",
                                          "m.step-15.safetensors",
                                          "m.step-30.safetensors",
                                          "whole.step-15.safetensors",
                                          "whole.step-30.safetensors"};
  for (int i = moments(6); i-- > 0 && !HasFailure();) {
    const End end = kill_at_random((has_checkpoint() ? kResume : kStart) + std::string("m.safetensors"), seconds);
    // SIGTERM and SIGINT save and end it by their codes; SIGKILL ends it.
    EXPECT_TRUE(end.status == 0 || end.by_signal()) << end.status << " by " << end.signal;
    expect_whole();
    expect_only(expected, end);
    if (end.status != 0) continue;
    EXPECT_EQ(result("m"), whole);
    for (const auto& [extension, content] : whole) std::filesystem::remove(path("m" + extension));
    seconds *= 0.8;  // more kills a run, on however fast a machine
  }
  EXPECT_EQ(Process(folder(), (has_checkpoint() ? kResume : kStart) + std::string("m.safetensors")).wait(), 0);
  EXPECT_EQ(result("m"), whole);
  EXPECT_FALSE(std::filesystem::exists(path("m.training.lock")));
}

TEST_F(KillTraining, OnOneThreadResumesBitForBit) { kill_and_resume(1); }
TEST_F(KillTraining, OnTwoThreadsResumesBitForBit) { kill_and_resume(2); }

// Two runs start at once: one goes on, and the other says why it does not; or they come one after the other.
TEST_F(KillTraining, TwoAtOnceAreOneAfterTheOther) {
  const std::string line = std::string(kStart) + "m.safetensors";
  seconds_of(std::string(kStart) + "whole.safetensors");
  for (int i = 0; i < 5; ++i) {
    const Process one(folder(), line), other(folder(), line);
    const int first = one.wait(), second = other.wait();
    EXPECT_EQ(std::min(first, second), 0);
    EXPECT_TRUE(std::max(first, second) == 0 || std::max(first, second) == 3) << first << " and " << second;
    EXPECT_EQ(result("m"), result("whole"));
  }
}

}  // namespace
}  // namespace attn::test
