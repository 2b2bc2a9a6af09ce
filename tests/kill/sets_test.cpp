// Files that belong together are whole at every moment: the command is killed, or its disk is full, at its first
// operation on files, its second one, and so on until it ends by itself.
#include <set>

#include "attn/pretrained.hpp"
#include "kill/kill.hpp"

namespace attn::test {
namespace {

namespace fs = std::filesystem;

class Sets : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    make_model("one", R"({"a": 1, "b": 2, "c": 3, "ab": 4, "d": 5})", 7);
    make_model("two", R"({"a": 5, "b": 3, "c": 2, "ab": 4, "d": 1})", 9);
    std::string text;
    for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "abcd" : "cabd";
    write("text.txt", text);
  }

  // A released model whose vocabulary and settings for generation tell it from others.
  void make_model(const std::string& name, const std::string& vocabulary, int end) const {
    fs::copy(kTests / "lm/data/llama", path(name));
    write(name + "/tokenizer.json",
          R"({"model": {"vocab": )" + vocabulary + R"(, "merges": ["a b"]}, "decoder": {"type": "Fuse"}})");
    write(name + "/generation_config.json", R"({"eos_token_id": )" + std::to_string(end) + "}");
  }

  // The line, stopped at its n-th operation on files.
  Ran stopped(const std::string& by, int n, const std::string& line) const {
    return run("export ASAN_OPTIONS=verify_asan_link_order=0:$ASAN_OPTIONS ATTN_STOP_BY=" + by +
               " ATTN_STOP_AT=" + std::to_string(n) + "; LD_PRELOAD='" ATTN_STOP_AT_LIBRARY "' " + line);
  }

  Files files_of(const std::string& name) const {
    Files all;
    if (!fs::exists(path(name))) return all;
    for (const auto& entry : fs::directory_iterator(path(name))) all[entry.path().filename()] = read(entry.path());
    return all;
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder())) all.insert(entry.path().filename());
    return all;
  }
};

constexpr const char* kTrain =
    "attn train --text text.txt --context 8 --batch 2 --steps 3 --save-every 1 --out out --from ";
constexpr const char* kResume = "attn train --text text.txt --save-every 1 --out out --resume";
const std::set<std::string> kFiles{"config.json", "generation_config.json", "model.safetensors",
                                   "model.svg",   "tokenizer.json",         "model.training.safetensors"};

std::set<std::string> names_of(const Files& files) {
  std::set<std::string> names;
  for (const auto& [name, content] : files) {
    if (!name.starts_with(".attn-")) names.insert(name);
  }
  return names;
}

// Over nothing, then over a model of another vocabulary, killed at every operation and resumed.
class KilledSets : public Sets, public testing::WithParamInterface<bool> {};

TEST_P(KilledSets, AreWholeAndGoOn) {
  setenv("OMP_NUM_THREADS", "1", 1);
  const bool over_another = GetParam();
  const std::string line = std::string(kTrain) + "one" + (over_another ? " --force" : "");
  out_of(std::string(kTrain) + "two");
  const Files old = files_of("out");
  fs::rename(path("out"), path("old"));
  out_of(std::string(kTrain) + "one");
  const Files whole = files_of("out");
  ASSERT_EQ(names_of(whole), kFiles);
  ASSERT_EQ(names_of(old), kFiles);
  EXPECT_EQ(whole.at("tokenizer.json"), read(path("one/tokenizer.json")));
  EXPECT_EQ(whole.at("generation_config.json"), read(path("one/generation_config.json")));
  fs::remove_all(path("out"));
  const std::set<std::string> others = names();

  int moments = 0, began_anew = 0;
  for (int n = 1; !HasFailure(); ++n) {
    if (over_another) fs::copy(path("old"), path("out"));
    const Ran ran = stopped("kill", n, line);
    const Files left = files_of("out");
    const auto is_of = [&](const Files& set, const char* name) {
      return left.contains(name) && left.at(name) == set.at(name);
    };
    const bool is_old = over_another && left == old, is_none = !over_another && left.empty();
    if (!is_old && !is_none) {
      EXPECT_EQ(names_of(left), kFiles) << n;
      for (const char* name : {"tokenizer.json", "generation_config.json", "config.json"}) {
        EXPECT_TRUE(is_of(whole, name)) << name << " at " << n;
      }
    }
    if (ran.status == 0) break;
    ASSERT_EQ(ran.status, 128 + SIGKILL) << n << ran.err;
    ++moments;
    began_anew += is_old || is_none;
    out_of(is_old || is_none ? line : kResume);
    EXPECT_EQ(files_of("out"), whole) << n;
    fs::remove_all(path("out"));
    EXPECT_EQ(names(), others) << n;
  }
  std::printf("%d moments, of which %d had no step yet\n", moments, began_anew);
  EXPECT_GT(began_anew, 8);            // each file of the first set, and its name
  EXPECT_GT(moments, began_anew + 8);  // a checkpoint, weights, config and curve of each further one
}

INSTANTIATE_TEST_SUITE_P(Over, KilledSets, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "AnotherModel" : "Nothing"; });

// The library's own function, in a process of its own: LD_PRELOAD takes hold when a program starts.
TEST(SavedSet, OfAnotherProcess) {
  if (std::getenv("ATTN_SAVES_A_SET") == nullptr) return;  // this one is started by the test below
  LanguageModel model = load_language_model("two");
  save_language_model("out", model);
}

// A folder that its owner fills: not replaced as a whole, but never the weights of one under the config of the other.
TEST_F(Sets, TheLibraryNeverMixesTwoModels) {
  write("two/config.json", [&] {
    std::string config = read(path("two/config.json"));
    const std::string key = "\"rms_norm_eps\": ";
    return config.insert(config.find(key) + key.size(), "1");  // another config for weights of the same shapes
  }());
  io::NamedTensors other = io::load(path("two/model.safetensors"));
  for (auto& [name, tensor] : other.tensors) tensor.data<float>()[0] += 1;
  io::save_safetensors(path("two/model.safetensors"), other);
  const std::string line =
      "ATTN_SAVES_A_SET=1 '" + fs::read_symlink("/proc/self/exe").string() + "' --gtest_filter='SavedSet.*'";
  const auto begin = [&] {
    fs::remove_all(path("out"));
    fs::create_directory(path("out"));
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
      fs::copy(path("one") / name, path("out") / name);
    write("out/model.safetensors.index.json", "{}");
  };
  begin();
  out_of(line);
  Files whole = files_of("out");
  EXPECT_FALSE(whole.contains("model.safetensors.index.json"));
  EXPECT_EQ(whole.at("tokenizer.json"), read(path("one/tokenizer.json")));
  int without = 0;
  for (int n = 1; !HasFailure(); ++n) {
    begin();
    const Files old = files_of("out");
    const Ran ran = stopped("kill", n, line);
    const Files left = files_of("out");
    without += !left.contains("model.safetensors");
    if (left.contains("model.safetensors")) {
      const Files& of = left.at("model.safetensors") == whole.at("model.safetensors") ? whole : old;
      EXPECT_EQ(left.at("model.safetensors"), of.at("model.safetensors")) << n;
      EXPECT_EQ(left.at("config.json"), of.at("config.json")) << n;
    }
    if (ran.status == 0) break;
    ASSERT_EQ(ran.status, 128 + SIGKILL) << n << ran.err;
  }
  EXPECT_GE(without, 2);
}

TEST_F(Sets, FullDisksLeaveTheOldModelOrAWholeOne) {
  out_of(std::string(kTrain) + "two");
  const Files old = files_of("out");
  const std::set<std::string> others = names();
  for (int n = 1; !HasFailure(); ++n) {
    const Ran ran = stopped("fail", n, std::string(kTrain) + "one --force");
    const Files left = files_of("out");
    if (left != old) {
      EXPECT_EQ(names_of(left), kFiles) << n;
      EXPECT_EQ(left.at("tokenizer.json"), read(path("one/tokenizer.json"))) << n;
      fs::remove_all(path("out"));
      for (const auto& [name, content] : old) fs::create_directory(path("out")), write("out/" + name, content);
    }
    EXPECT_EQ(names(), others) << n << ran.err;
    if (ran.err.find("stopped") == std::string::npos) break;
    if (ran.status != 0) {  // else a file that could not be made without a name was made with one
      EXPECT_EQ(ran.status, 3) << n;
      EXPECT_THAT(ran.err, testing::HasSubstr("No space left on device")) << n;
    }
  }
}

}  // namespace
}  // namespace attn::test
