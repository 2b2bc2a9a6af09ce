// attn train: that it learns, that a run which is stopped continues bit for bit (tests/kill: one that is killed), what
// becomes of one that diverges, and what it refuses.
#include "attn/train.hpp"

#include <array>
#include <random>

#include "attn/error.hpp"
#include "attn/pretrained.hpp"
#include "command/command.hpp"

namespace attn::test {
namespace {

class TrainTest : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write_words();
  }

  // One thread: so small a model gains nothing by more.
  static constexpr const char* kWithoutSteps =
      "OMP_NUM_THREADS=1 attn train --text text.txt --layers 1 --heads 2 --width 16 --context 16 --batch 4 --dropout "
      "0.1 --warmup 5 --lr 0.01 --eval-every 10 ";
  const std::string kRun = std::string(kWithoutSteps) + "--steps 60 ";
  static constexpr const char* kResume = "OMP_NUM_THREADS=1 attn train --text text.txt --resume ";

  std::map<std::string, std::string> result(const std::string& name) const {
    return {{"model", read(path(name + ".safetensors"))},
            {"checkpoint", read(path(name + ".training.safetensors"))},
            {"curve", read(path(name + ".svg"))}};
  }
};

TEST_F(TrainTest, LearnsAndWritesAModelACheckpointAndACurve) {
  const std::string out = out_of(kRun + "--out m.safetensors --json");
  std::istringstream lines(out);
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(lines, line);) steps.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(steps.size(), 7u);  // 1, 10, …, 60
  EXPECT_NEAR(steps.front()["loss"].get<double>(), std::log(256), 0.1);
  EXPECT_LT(steps.back()["validation"].get<double>(), 3.2);
  EXPECT_EQ(steps.back()["step"], 60);
  EXPECT_GT(steps.back()["tokens_per_second"].get<double>(), 0);
  GPT model = load_gpt(path("m.safetensors"));
  EXPECT_EQ(model.config().width, 16);
  EXPECT_EQ(model.config().dropout, 0.1);
  EXPECT_THAT(read(path("m.svg")), testing::AllOf(HasSubstr("validation"), HasSubstr("nats a byte")));
  // The same run again, to the bit; plain lines, and a summary.
  const Ran again = run(kRun + "--out n.safetensors");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("step     60  loss "));
  EXPECT_THAT(again.out, testing::ContainsRegex("validation loss [0-9.]+ nats a byte at step 60"));
  EXPECT_EQ(result("m"), result("n"));
}

TEST_F(TrainTest, LayersThatKeepAState) {
  const std::string flags =
      "OMP_NUM_THREADS=1 attn train --text text.txt --layers 4 --heads 2 --width 16 --context 16 --batch 4 --warmup 5 "
      "--lr 0.01 --eval-every 10 --steps 20 ";
  const std::string mixed = flags + "--mixer gated-delta:3,softmax:1 ";
  out_of(mixed + "--out whole.safetensors");
  out_of(mixed + "--until 10 --out cut.safetensors");
  out_of(kResume + std::string("--out cut.safetensors"));
  EXPECT_EQ(result("whole"), result("cut"));
  const LanguageModel model = load_language_model(path("whole.safetensors"));
  EXPECT_EQ(model.config().layers[2].mixer, Mixer::gated_delta);
  EXPECT_EQ(model.config().layers[3].mixer, Mixer::softmax);
  EXPECT_THAT(out_of("attn generate --model whole.safetensors --prompt a --tokens 4 --temperature 0"), HasSubstr("a"));
  out_of("attn report --model whole.safetensors --text 'attention is' --output page.html");
  EXPECT_THAT(read(path("page.html")), HasSubstr("Their effective weights may be"));
  for (const std::string mixer : {"delta", "softmax:0", "gated-delta:", "softmax,"}) {
    const Ran wrong = run(flags + "--mixer '" + mixer + "' --out x.safetensors");
    EXPECT_EQ(wrong.status, 2) << mixer;
    EXPECT_THAT(wrong.err, HasSubstr("gated-delta:3,softmax:1"));
  }
  refused(flags + "--mixer gated-delta:3,softmax:2 --out x.safetensors", 2,
          {"[--mixer] expected mixers for at most 4 layers, as --layers has", "found 5 in gated-delta:3,softmax:2"});
  refused(flags + "--mixer softmax:5 --out x.safetensors", 2, {"[--mixer]", "found 5 in softmax:5"});
  const Ran llama = run("attn train --text text.txt --family llama --mixer gated-delta --out x.safetensors");
  EXPECT_EQ(llama.status, 2);
  EXPECT_THAT(llama.err, HasSubstr("--family gpt2, which alone has it; found --mixer"));
}

TEST_F(TrainTest, StoppedByASignalItSavesAndContinues) {
  out_of(kRun + "--out whole.safetensors");
  for (const auto& [signal, status] : {std::pair{"INT", 130}, {"TERM", 143}}) {
    const std::string name = signal;
    const Ran ran =
        run(std::string(kWithoutSteps) + "--steps 100000 --save-every 1000000 --out " + name + ".safetensors 2>" +
            name + ".log & until grep -q ^step " + name + ".log; do sleep 0.02; done; kill -" + name + " $!; wait $!");
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("--resume"));
    EXPECT_TRUE(std::filesystem::exists(path(name + ".training.safetensors")));
  }
  // A run in parts, by steps and by time, gives the same as a whole one.
  for (const char* part : {"--until 23", "--until 41", "--minutes 0.0001"}) {
    const Ran ran = run(std::string(std::filesystem::exists(path("m.safetensors")) ? kResume : kRun.c_str()) +
                        "--out m.safetensors " + part);
    EXPECT_EQ(ran.status, 0) << ran.err;
  }
  EXPECT_EQ(run(std::string(kResume) + "--out m.safetensors").status, 0);
  EXPECT_EQ(result("m"), result("whole"));
}

// Weight decay that turns weights over, and grows them without bound: by step 2 the gradient is not finite.
constexpr const char* kDiverging = "--weight-decay 1e30 --save-every 1 --out m.safetensors ";

TEST_F(TrainTest, DivergedItStopsAndKeepsTheLastFiniteCheckpoint) {
  out_of(kRun + kDiverging + "--until 1");
  const auto finite = result("m");
  for (const char* way : {"", "--json ", "--on-nan stop "}) {
    const Ran ran = run(kRun + kDiverging + "--force " + way);
    EXPECT_EQ(ran.status, 3) << way;
    EXPECT_THAT(ran.err, testing::ContainsRegex("found loss .+ and gradient norm .+ at step [0-9]+; "));
    EXPECT_THAT(ran.err, HasSubstr("gradient norm nan at step 2; \"m.training.safetensors\" is still the checkpoint of "
                                   "step 1; "));
    EXPECT_THAT(ran.err, HasSubstr("--on-nan skip"));
    EXPECT_EQ(result("m"), finite) << way;
  }
  // A run may diverge before there is a checkpoint, or resumed from one.
  std::filesystem::remove(path("m.safetensors"));
  std::filesystem::remove(path("m.training.safetensors"));
  std::filesystem::remove(path("m.svg"));
  const auto before = files();
  const Ran none = run(kRun + "--weight-decay 1e30 --save-every 10 --out m.safetensors");
  EXPECT_EQ(none.status, 3);
  EXPECT_THAT(none.err, HasSubstr("nothing was saved yet"));
  EXPECT_EQ(files(), before);
  out_of(kRun + kDiverging + "--until 1");
  const Ran resumed = run(std::string(kResume) + "--out m.safetensors");
  EXPECT_EQ(resumed.status, 3);
  EXPECT_THAT(resumed.err, HasSubstr("checkpoint of step 1;"));
  EXPECT_EQ(result("m"), finite);
}

TEST_F(TrainTest, StepsThatAreNotFiniteAreSkippedButNotForEver) {
  out_of(kRun + kDiverging + "--until 1");
  const auto finite = result("m");
  const Ran plain = run(std::string(kResume) + "--out m.safetensors --on-nan skip");
  EXPECT_EQ(plain.status, 3);
  EXPECT_THAT(plain.err, HasSubstr("step      2  skipped: loss "));
  EXPECT_THAT(plain.err, HasSubstr("at step 2, with 10 batches in a row; "));
  const Ran json = run(std::string(kResume) + "--out m.safetensors --on-nan skip --json");
  std::istringstream lines(json.out);
  int skipped = 0;
  for (std::string line; std::getline(lines, line); ++skipped) {
    const auto step = nlohmann::json::parse(line);
    EXPECT_EQ(step["step"], 2);
    EXPECT_EQ(step["skipped"], true);
    EXPECT_EQ(step["norm"], "nan");
  }
  EXPECT_EQ(skipped, 9);
  EXPECT_EQ(result("m"), finite);
  EXPECT_EQ(run("attn train --text text.txt --out n.safetensors --on-nan other").status, 2);
}

TEST_F(TrainTest, ReplacesAModelOnlyByForce) {
  const std::string tiny = "attn train --text text.txt --layers 1 --heads 1 --width 8 --context 8 --batch 2 ";
  out_of(tiny + "--steps 2 --out m.safetensors");
  const auto old = result("m");
  for (const char* gone : {"none", "m.safetensors", "m.training.safetensors"}) {
    const std::string kept = read(path(gone));
    std::filesystem::remove(path(gone));
    const auto before = files();
    const Ran ran = run(tiny + "--steps 3 --out m.safetensors");
    EXPECT_EQ(ran.status, 2) << gone;
    EXPECT_THAT(ran.err, HasSubstr("--resume, or replace it by --force")) << gone;
    EXPECT_EQ(files(), before) << gone;
    if (!kept.empty()) write(gone, kept);
  }
  EXPECT_EQ(run("attn train --text text.txt --out m.safetensors --resume --force").status, 2);
  EXPECT_EQ(result("m"), old);
  out_of(tiny + "--steps 3 --out m.safetensors --force");
  out_of(tiny + "--steps 3 --out new.safetensors");
  EXPECT_EQ(result("m"), result("new"));
}

TEST_F(TrainTest, ForceRemovesNothingThatNoRunWrote) {
  const std::string tiny = "attn train --text text.txt --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps 2 ";
  out_of(tiny + "--out m.safetensors --keep-every 1");
  for (const char* name : {"m.step-99.safetensors", "m.best.safetensors"}) {
    const std::string before = read(path(name));  // of the run, where it has one
    write(name, "notes");
    refused(tiny + "--out m.safetensors --force", 2,
            {"[--force] expected only what attn train wrote", name, "move it"});
    EXPECT_EQ(read(path(name)), "notes");
    before.empty() ? void(std::filesystem::remove(path(name))) : write(name, before);
  }
  out_of(tiny + "--out m.safetensors --force");
  EXPECT_FALSE(std::filesystem::exists(path("m.step-1.safetensors")));
}

// A model by this name has a config.json beside it, and takes the place of weights in several files.
TEST_F(TrainTest, NeitherAConfigNorAnIndexOfOthersIsReplaced) {
  const std::string tiny =
      "attn train --text text.txt --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps 2 --out "
      "model.safetensors";
  for (const char* name : {"config.json", "model.safetensors.index.json"}) {
    write(name, "{}");
    const auto before = files();
    refused(tiny, 2, {"[--out] expected no model there yet", name, "--force"});
    refused(tiny + " --force", 2, {"[--force] expected only what attn train wrote", name, "move it"});
    EXPECT_EQ(files(), before);
    std::filesystem::remove(path(name));
  }
  EXPECT_THAT(out_of(tiny), HasSubstr("wrote model.safetensors with its config.json, "));
  out_of(tiny + " --force");
  std::filesystem::remove(path("model.safetensors"));
  out_of(tiny + " --force");
  write("model.safetensors.index.json", "{}");
  refused(tiny + " --force", 2, {"[--force]", "model.safetensors.index.json"});
  EXPECT_EQ(read(path("model.safetensors.index.json")), "{}");
}

TEST_F(TrainTest, ARunGoesOnWithTheCurveThatItHas) {
  const std::string tiny = "attn train --text text.txt --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps 3 ";
  write("m.svg", "a drawing");
  write("other.svg", "a drawing");
  std::filesystem::create_directory(path("curves"));
  out_of(tiny + "--out m.safetensors --until 1 --curve curves/c.svg");
  const std::string first = read(path("curves/c.svg")),
                    resume = "attn train --text text.txt --out m.safetensors --resume";
  out_of(resume + " --until 2");
  EXPECT_NE(read(path("curves/c.svg")), first);
  refused(resume + " --curve other.svg", 2, {"[--curve]", "this run's curve \"curves/c.svg\"", "other.svg"});
  EXPECT_EQ(read(path("m.svg")), "a drawing");
  EXPECT_EQ(read(path("other.svg")), "a drawing");
  out_of(resume + " --curve new.svg");
  EXPECT_THAT(read(path("new.svg")), StartsWith("<svg"));
}

TEST_F(TrainTest, ReplacesNoFileOfTheUsersButByForce) {
  const std::string tiny = "attn train --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps 2 --text ";
  write("logo.svg", "a drawing");
  write("logo.best.safetensors", "a model");
  write("a.svg", read(path("text.txt")));
  std::filesystem::create_symlink("a.svg", path("b.svg"));
  const std::string force = "replace it by --force";
  refused(tiny + "text.txt --out m.safetensors --curve logo.svg", 2, {"[--curve] expected no file there yet", force});
  refused(tiny + "text.txt --out logo.safetensors", 2, {"[--out] expected no model there yet", force});
  std::filesystem::remove(path("logo.best.safetensors"));
  refused(tiny + "text.txt --out logo.safetensors", 2,
          {"[--curve] expected no file there yet; found \"logo.svg\"", force});
  // A file that is read is never replaced, not by --force either.
  const std::string read_too = "a place other than that of --text, which is read";
  refused(tiny + "a.svg --out m.safetensors --force --curve a.svg", 2, {"[--curve] expected " + read_too});
  refused(tiny + "text.txt a.svg --out b.safetensors --force", 2, {"[--curve] expected " + read_too});
  write("t.safetensors", read(path("text.txt")));
  write("t.training.safetensors", read(path("text.txt")));
  refused(tiny + "t.safetensors --out t.safetensors --force", 2, {"[--out] expected " + read_too});
  refused(tiny + "t.training.safetensors --out t.safetensors --force", 2, {"[--out] expected " + read_too});
  // A run's own curve goes on.
  out_of(tiny + "text.txt --out logo.safetensors --force --until 1");
  EXPECT_THAT(read(path("logo.svg")), StartsWith("<svg"));
  out_of("attn train --text text.txt --out logo.safetensors --resume");
  refused("attn train --text b.svg --out logo.safetensors --resume --curve a.svg", 2,
          {"[--curve] expected " + read_too});
  refused(tiny + "text.txt --out n.safetensors --curve -", 2, {"[--curve] expected a file, which every checkpoint"});
  std::filesystem::create_symlink("/dev/null", path("null.svg"));
  out_of(tiny + "text.txt --out n.safetensors --curve null.svg");
}

TEST_F(TrainTest, OneAtATimeAndAKilledOneLocksNobodyOut) {
  const std::string endless = std::string(kWithoutSteps) + "--steps 1000000 --save-every 1000000 --out m.safetensors ";
  std::filesystem::create_symlink("m.safetensors", path("link.safetensors"));
  // Its process, as the lock file has it; killed at the end of the script.
  const std::string begin = "rm -f log; (exec " + endless.substr(endless.find("attn train")) +
                            ") 2>log & until grep -qs ^step log; do kill -0 $! || exit 1; sleep 0.02; done; "
                            "cat m.training.lock >holder; ";
  for (const char* out : {"m.safetensors", "./m.safetensors", "link.safetensors"}) {
    const Ran ran =
        run(begin + "(" + kRun + "--force --out " + out + "); status=$?; kill -KILL $!; wait $!; exit $status");
    const std::string holder = read(path("holder"));
    EXPECT_EQ(ran.status, 3) << out;
    EXPECT_THAT(ran.err, HasSubstr("found process " + holder.substr(0, holder.find('\n')) + " training \"")) << out;
    EXPECT_TRUE(std::filesystem::exists(path("m.training.lock")));  // left by the kill
  }
  EXPECT_THAT(run(std::string(kWithoutSteps) + "--steps 10 --out m.safetensors").err, Not(HasSubstr("error")));
  EXPECT_FALSE(std::filesystem::exists(path("m.training.lock")));
}

TEST_F(TrainTest, AClosedPipeSavesAndStops) {
  const Ran ran = run(std::string(kWithoutSteps) +
                      "--steps 100000 --json --log-every 1 --save-every 1000000 --out m.safetensors | head -1");
  EXPECT_THAT(ran.out, HasSubstr("\"step\":1,"));
  EXPECT_THAT(ran.err, HasSubstr("--resume"));
  EXPECT_TRUE(std::filesystem::exists(path("m.training.safetensors")));
  EXPECT_EQ(run(std::string(kResume) + "--out m.safetensors --minutes 0.0001").status, 0);
}

TEST_F(TrainTest, Refuses) {
  const auto fails = [&](const std::string& line, int status, const std::string& part) {
    refused(line, status, {part});
  };
  const std::string tiny = "attn train --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps 2 ";
  fails(tiny + "--text text.txt --out m.bin", 2, "--out");
  fails(tiny + "--text none.txt --out m.safetensors", 3, "none.txt");
  fails(tiny + "--out m.safetensors", 2, "--text");
  fails(tiny + "--text text.txt", 2, "--out");
  fails("printf short | " + tiny + "--text - --out m.safetensors", 3, "more than 8 tokens");
  fails("attn train --text text.txt --out m.safetensors --heads 3", 2, "the heads divide");
  fails(tiny + "--text text.txt --out m.safetensors --precision low", 2, "highest, high, medium");
  fails(tiny + "--text text.txt --out m.safetensors --gelu other", 2, "tanh, exact");
  fails(tiny + "--text text.txt --out m.safetensors --rng other", 2, "philox, native, mkl");
  fails("attn train --text text.txt --context 8 --out m.safetensors --steps 0", 2, "--steps");
  fails("attn train --text text.txt --context 8 --out m.safetensors --batch 0", 2, "--batch");
  fails(tiny + "--text text.txt --out m.safetensors --eval-every 0", 2, "--eval-every");
  fails(tiny + "--text text.txt --out m.safetensors --validation 1", 2, "--validation");
  fails(tiny + "--text text.txt --out m.safetensors --lr nan", 2, "above 0 and below 1000; found nan");
  fails(tiny + "--text text.txt --out m.safetensors --lr 1e20", 2, "above 0 and below 1000; found 1e+20");
  fails(tiny + "--text text.txt --out m.safetensors --min-lr 1", 2, "from 0 to --lr; found 1");
  fails("attn train --text text.txt --out m.safetensors --resume", 3, "m.training.safetensors");
  fails(tiny + "--text text.txt --out m.safetensors --keep-every 3", 2, "up to 2, the last one; found 3");
  write("empty.txt", "");
  fails(tiny + "--text text.txt empty.txt --out m.safetensors", 3,
        "[--text] expected files of at least one token; "
        "found none in \"empty.txt\"; leave it out");
  fails(tiny + "--text text.txt --out -", 2, "a file");
  out_of(tiny + "--text text.txt --out m.safetensors");
  fails("attn train --text text.txt --out m.safetensors --resume --width 8", 2, "--width");
  fails("attn train --text text.txt --out m.safetensors --resume --until 1", 2, "a step from 2 on");
  fails("attn train --text text.txt --out m.safetensors --resume --shard", 2, "several ranks");
  write("other.txt", read(path("text.txt")) + "more");
  fails("attn train --text other.txt --out m.safetensors --resume", 3, "give the same files, and their tokenizer");
  // A checkpoint that is none, or a damaged one.
  const std::string good = read(path("m.training.safetensors"));
  std::filesystem::copy(path("m.safetensors"), path("m.training.safetensors"),
                        std::filesystem::copy_options::overwrite_existing);
  fails("attn train --text text.txt --out m.safetensors --resume", 3, "a checkpoint of attn train");
  write("m.training.safetensors", good.substr(0, good.size() / 2));
  fails("attn train --text text.txt --out m.safetensors --resume", 3, "safetensors");
  std::string swapped = good;
  swapped.replace(swapped.find("\"losses\""), 8, "\"lossez\"");
  write("m.training.safetensors", swapped);
  fails("attn train --text text.txt --out m.safetensors --resume", 3, "losses");
}

// One who gives --lr or --steps alone need not know what else depends on them.
TEST_F(TrainTest, TheScheduleFollowsItsRateAndSteps) {
  const auto config = [&](const std::string& flags) {
    out_of("attn train --layers 1 --heads 1 --width 8 --context 8 --batch 2 --text text.txt --force --until 1 " +
           flags + " --out m.safetensors");
    return TrainCheckpoint::load(path("m.training.safetensors")).config;
  };
  EXPECT_EQ(config("").min_lr, 0.0001);
  EXPECT_EQ(config("").warmup, 100);
  EXPECT_EQ(config("--lr 0.00005").min_lr, 0.00005 / 10);
  EXPECT_EQ(config("--lr 0.00005 --min-lr 0").min_lr, 0);
  EXPECT_EQ(config("--steps 50").warmup, 5);
  EXPECT_EQ(config("--steps 50 --warmup 60").warmup, 60);
}

// docs/training.md: the run on the licences that every Debian has. Its first steps, to the loss that the page states.
// Nothing of it was given on the command line: not 2, the code for wrong usage.
TEST_F(TrainTest, SettingsOfACheckpointThatMakeNoRunAreBadData) {
  out_of(kRun + "--until 2 --out m.safetensors");
  const io::NamedTensors file = io::load(path("m.training.safetensors"));
  using Lie = std::array<const char*, 3>;  // the right text, the wrong one, and what the error names
  for (const auto& [right, wrong, told] : std::vector<Lie>{{"\"heads\":2", "\"heads\":0", "heads"},
                                                           {"\"lr\":", "\"lr\":-", "--lr"},
                                                           {"\"gelu\":\"tanh\"", "\"gelu\":\"other\"", "gelu"},
                                                           {"\"beta2\":0", "\"beta2\":3", "beta2"},
                                                           {"\"rng\":\"philox\"", "\"rng\":\"dice\"", "dice"}}) {
    io::NamedTensors lied = file;
    std::string& settings = lied.metadata.at("settings");
    ASSERT_NE(settings.find(right), std::string::npos) << settings;
    settings.replace(settings.find(right), std::string(right).size(), wrong);
    io::save_safetensors(path("m.training.safetensors"), lied);
    const Ran ran = run("attn train --text text.txt --out m.safetensors --resume");
    EXPECT_EQ(ran.status, 3) << wrong << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(told));
    EXPECT_THAT(ran.err, HasSubstr("m.training.safetensors"));
  }
}

TEST_F(TrainTest, TheFirstMinuteOfTheDocumentedRun) {
#if defined(ATTN_SANITIZED)
  GTEST_SKIP() << "too slow under sanitizers, which the other tests run under";
#endif
  const std::string page = read(ATTN_SOURCE "/docs/training.md");
  const auto find = [&](const std::string& before, const std::string& after) {
    const auto begin = page.find(before);
    EXPECT_NE(begin, std::string::npos) << before;
    return page.substr(begin + before.size(), page.find(after, begin + before.size()) - begin - before.size());
  };
  // The command, line ends joined, as the page has it.
  std::string line = find("s/--steps 3000/--steps 2/ -->\n```sh\n", "\n```");
  const std::string text = line.substr(0, line.find("attn train"));
  if (run(text + " cat $text | md5sum").out.substr(0, 32) != find("text's md5sum is `", "`")) {
    GTEST_SKIP() << "this system's licences are other ones";
  }
  // Threads that wait do so asleep: the machine may be busy.
  out_of("export OMP_WAIT_POLICY=passive\n" + line + " --until 50 --json > log");
  const std::string log = read(path("log"));
  double loss = 0;
  std::istringstream lines(log);
  for (std::string each; std::getline(lines, each);) {
    const auto step = nlohmann::json::parse(each);
    if (step.contains("validation")) loss = step["validation"].get<double>();
  }
  EXPECT_NEAR(loss, std::stod(find("| 50 | ", " |")), 0.02);
}

}  // namespace
}  // namespace attn::test
