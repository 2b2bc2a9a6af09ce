// A disk that is full at any write: an error that says so, and the old file.
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "core/testing.hpp"
#include "kill/kill.hpp"

namespace attn::test {
namespace {

constexpr std::uintmax_t kBlock = 4096;

// A small disk of its own, seen by this process and its children only.
class FullDisk : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder().c_str(), "tmpfs", 0, "size=8m") != 0) {
      GTEST_SKIP() << "no right to mount a file system: " << std::strerror(errno);
    }
    mounted_ = true;
    Generator rng(1);
    io::save_npy(path("x.npy"), rng.randn({40, 16}));
    write("text.txt", std::string(4000, 'a'));
  }
  void TearDown() override {
    if (mounted_) umount2(folder().c_str(), MNT_DETACH);
    Command::TearDown();
  }

  // Fills the disk but for so many bytes.
  void leave(std::uintmax_t bytes) const {
    std::filesystem::remove(path("ballast"));
    const auto space = std::filesystem::space(folder()).available;
    std::ofstream(path("ballast"), std::ios::binary) << std::string(space - bytes, 'b');
    ASSERT_EQ(std::filesystem::space(folder()).available, bytes);
  }

  // Runs the line with ever more space until it succeeds; returns how often it did not.
  int fail_until_there_is_space(const std::string& line) {
    const Files before = files();
    for (int failures = 0;; ++failures) {
      leave(static_cast<std::uintmax_t>(failures) * kBlock);
      const Ran ran = run(line);
      std::filesystem::remove(path("ballast"));
      if (ran.status == 0) return failures;
      EXPECT_EQ(ran.status, 3) << line << ran.err;
      EXPECT_THAT(ran.err, testing::HasSubstr("No space left on device")) << line;
      expect_old(before, line);
      if (HasFailure()) return failures;
    }
  }
  virtual void expect_old(const Files& before, const std::string& line) { EXPECT_EQ(files(), before) << line; }

 private:
  bool mounted_ = false;
};

TEST_F(FullDisk, OfOutputs) {
  for (const char* line :
       {"run multihead --input x.npy --output z.npy --save-weights w.safetensors --save-steps s.safetensors",
        "report multihead --input x.npy --output r.html", "plot multihead --input x.npy --output p.svg",
        "run simple --input x.npy --json --output z.csv"}) {
    for (const char* seed : {"", "again"}) {  // new files, then old ones
      if (shortened() && *seed != 0) continue;
      SCOPED_TRACE(seed);
      EXPECT_GE(fail_until_there_is_space(std::string("attn ") + line), 1) << line;
    }
  }
}

class FullDiskOfTraining : public FullDisk {
 protected:
  // The checkpoint goes first: it may be newer than the model.
  void expect_old(const Files& before, const std::string& line) override {
    Files now = files();
    for (const char* name : {"m.training.safetensors", "m.safetensors", "m.svg"}) {
      if (now[name] == before.at(name)) break;
      EXPECT_EQ(now[name], next_.at(name)) << line;
      now[name] = before.at(name);
    }
    EXPECT_EQ(now, before) << line;
  }
  Files next_;
};

TEST_F(FullDiskOfTraining, OfOldAndNewFiles) {
  const std::string start =
      "attn train --text text.txt --layers 1 --heads 2 --width 8 --context 8 --batch 2 --steps 3 --save-every 1 --out ";
  const std::string resume = "attn train --text text.txt --resume --save-every 1 --out m.safetensors --until ";
  out_of(start + "whole.safetensors");
  const auto as_m = [&](const std::string& name) {
    Files all = files();
    for (const char* end : {".safetensors", ".training.safetensors", ".svg"}) {
      if (all.count(name + end) != 0) next_["m" + std::string(end)] = all.at(name + end);
    }
  };
  out_of(start + "m.safetensors --until 1");
  for (const char* until : {"2", "3"}) {
    out_of(start + "next.safetensors --force --until " + until);
    as_m("next");
    EXPECT_GE(fail_until_there_is_space(resume + until), 3);
  }
  as_m("whole");
  for (const auto& [name, content] : next_) EXPECT_EQ(read(path(name)), content) << name;
}

}  // namespace
}  // namespace attn::test
