// The command leaves whole files under the names that were asked for, and nothing else.
#include "command/command.hpp"

namespace attn::test {
namespace {

constexpr int kUsage = 2, kData = 3, kClosedPipe = 128 + SIGPIPE;

class OutputsOfTheCommand : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write_six_words();
    write("old.npy", "an older result");
    std::filesystem::create_directory(path("folder"));
  }

  void same_file(const std::string& line) const { refused(line, kUsage, {"the same one"}); }
};

TEST_F(OutputsOfTheCommand, AreDifferentFilesByWhateverName) {
  write("w.safetensors", "older weights");
  std::filesystem::create_symlink("w.safetensors", path("link.safetensors"));
  std::filesystem::create_symlink("new.safetensors", path("dangling.safetensors"));
  std::filesystem::create_symlink("folder", path("way"));
  std::filesystem::create_hard_link(path("w.safetensors"), path("hard.safetensors"));
  const std::string causal = "attn run causal --input x.csv --d-out 2 ";
  same_file(causal + "--output a.safetensors --save-weights ./a.safetensors");
  same_file(causal + "--output a.safetensors --save-weights folder/../a.safetensors");
  same_file(causal + "--output folder/a.safetensors --save-weights way/a.safetensors");
  same_file(causal + "--output w.safetensors --save-weights link.safetensors");
  same_file(causal + "--output w.safetensors --save-weights hard.safetensors");
  same_file(causal + "--save-steps new.safetensors --save-weights dangling.safetensors");
  same_file("attn sdpa --q x.csv --k x.csv --v x.csv --output a.npy --lse ./a.npy");
  same_file("attn sdpa --q x.csv --k x.csv --v x.csv --lse a.npy --save-weights $PWD/a.npy");
  same_file(causal + "--output - --save-weights w.safetensors >>w.safetensors");
}

TEST_F(OutputsOfTheCommand, OfTrainingAreDifferentFiles) {
  write("book.txt", std::string(4000, 'a'));
  write("m.safetensors", "a model");
  std::filesystem::create_symlink("m.safetensors", path("m.training.safetensors"));
  same_file("attn train --text book.txt --out m.safetensors --steps 1 --layers 1 --context 8");
}

TEST_F(OutputsOfTheCommand, TakeTheFormatOfTheNameThatWasGiven) {
  std::filesystem::create_symlink("data", path("link.csv"));
  out_of("attn run simple --input x.csv --output link.csv");
  EXPECT_EQ(io::load(path("data")).format, io::Format::csv);
}

// A limit on file sizes kills half way, as kill -9 would: no handler runs.
TEST_F(OutputsOfTheCommand, AreOldAndAloneAfterAKillHalfWay) {
  io::save_npy(path("long.npy"), Tensor::ones({400, 64}));
  const auto before = files();
  for (const char* line :
       {"attn run simple --input long.npy --output old.npy", "attn run simple --input long.npy --output new.npy",
        "attn run self-v1 --input long.npy --output old.npy --save-weights w.safetensors --save-steps s.safetensors",
        "attn plot simple --input long.npy --output p.svg", "attn report simple --input long.npy --output r.html",
        "attn sdpa --q long.npy --k long.npy --v long.npy --output z.npy --save-weights w.npy"}) {
    const Ran ran = run(std::string("(ulimit -c 0; ulimit -f 8; exec ") + line + ")");
    EXPECT_EQ(ran.status, 128 + SIGXFSZ) << line << ran.err;
    EXPECT_EQ(files(), before) << line;
  }
}

TEST_F(OutputsOfTheCommand, AreAllOldWhereOneCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const auto before = files();
  const Ran ran = run("attn run causal --input x.csv --d-out 2 --save-weights w.safetensors --output - >/dev/full");
  EXPECT_EQ(ran.status, kData);
  EXPECT_THAT(ran.err, HasSubstr("No space left"));
  EXPECT_EQ(files(), before);
}

// Files stay old also where standard output is closed: no file that is opened takes its place.
TEST_F(OutputsOfTheCommand, AreAllOldWhereStandardOutputFails) {
  write("old.svg", "an older figure");
  const auto before = files();
  std::vector<std::string> ways{">&-", "<&- >&-"};
  if (std::filesystem::exists("/dev/full")) ways.emplace_back(">/dev/full");
  for (const std::string line :
       {"run simple --input x.csv --output old.npy", "run causal --input x.csv --d-out 2 --save-weights w.safetensors",
        "run simple --input x.csv --save-steps s.safetensors --json", "plot causal --output old.svg",
        "report causal --output r.html", "draw randn:2 --output old.npy",
        "sdpa --q x.csv --k x.csv --v x.csv --output old.npy --lse l.npy"}) {
    for (const std::string& way : ways) {
      const Ran ran = run("attn " + line + " " + way);
      EXPECT_EQ(ran.status, kData) << line << way;
      EXPECT_THAT(ran.err, HasSubstr("expected a file that can be written; found a failed write")) << line << way;
      EXPECT_EQ(files(), before) << line << way;
    }
  }
  const Ran ran = run("{ sleep 0.2; attn run simple --output old.npy; } | true");
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(files(), before);
}

TEST_F(OutputsOfTheCommand, EndQuietlyWithTheirReader) {
  for (const char* verb : {"report multihead --d-out 4 --output -", "plot causal --output -", "demo", "--help",
                           "run simple --input x.csv", "run simple --input x.csv --output -"}) {
    // The reader is gone before the first byte is written.
    const Ran ran = run(std::string("{ sleep 0.2; attn ") + verb + "; echo $? >status; } | true; cat status");
    EXPECT_EQ(ran.out, std::to_string(kClosedPipe) + "\n") << verb;
    EXPECT_EQ(ran.err, "") << verb;
  }
  const Ran part = run("{ attn report multihead --d-out 4 --output -; echo $? >status; } | head -1; cat status");
  EXPECT_THAT(part.out, testing::EndsWith(std::to_string(kClosedPipe) + "\n"));
  EXPECT_EQ(part.err, "");
}

}  // namespace
}  // namespace attn::test
