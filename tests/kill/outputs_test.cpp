// attn run, report, plot and generate, killed at any moment: every file is the old one or the new one.
#include "kill/kill.hpp"

namespace attn::test {
namespace {

// Two lines that differ in their seed write the same files by turns.
struct Victim {
  std::string name, line;
  std::vector<std::string> outputs;
};

class KillOutputs : public KillTest, public testing::WithParamInterface<Victim> {
 protected:
  void SetUp() override {
    KillTest::SetUp();
    Generator rng(1);
    io::save_npy(path("x.npy"), rng.randn({200, 32}));
  }

  std::string line(std::size_t seed) const { return GetParam().line + " --seed " + std::to_string(seed); }
  Files outputs() const {
    Files all;
    for (const std::string& name : GetParam().outputs) {
      if (std::filesystem::exists(path(name))) all[name] = read(path(name));
    }
    return all;
  }
};

TEST_P(KillOutputs, AreOldOrNew) {
  std::vector<Files> whole;
  double seconds = 0;
  for (const std::size_t seed : {std::size_t{0}, std::size_t{1}}) {
    seconds = std::max(seconds, seconds_of(line(seed)));
    whole.push_back(outputs());
    ASSERT_EQ(whole.back().size(), GetParam().outputs.size());
  }
  for (const auto& [name, content] : whole[0]) ASSERT_NE(content, whole[1].at(name)) << name;
  std::vector<std::string> allowed = GetParam().outputs;
  allowed.push_back("x.npy");
  for (int i = moments(6); i-- > 0 && !HasFailure();) {
    if (pick(4) == 0) {
      for (const std::string& name : GetParam().outputs) std::filesystem::remove(path(name));
    }
    const std::size_t seed = pick(2);
    const Files before = outputs();
    const End end = kill_at_random(line(seed), 1.1 * seconds);
    EXPECT_TRUE(end.status == 0 || end.by_signal()) << end.status;
    const Files after = outputs();
    for (const std::string& name : GetParam().outputs) {
      const auto now = after.find(name), old = before.find(name);
      const bool is_old = now == after.end() ? old == before.end() : old != before.end() && old->second == now->second;
      const bool is_new = now != after.end() && now->second == whole[seed].at(name);
      EXPECT_TRUE(is_new || (is_old && end.status != 0)) << name << " after signal " << end.signal;
    }
    expect_only(allowed, end);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, KillOutputs,
    testing::Values(Victim{"Run",
                           "run multihead --input x.npy --output z.npy --save-weights w.safetensors --save-steps "
                           "s.safetensors",
                           {"z.npy", "w.safetensors", "s.safetensors"}},
                    Victim{"Report", "report multihead --input x.npy --output r.html", {"r.html"}},
                    Victim{"Plot", "plot multihead --input x.npy --output p.svg", {"p.svg"}}),
    [](const auto& instance) { return instance.param.name; });

// Its object without the times; throws for one that is torn.
nlohmann::json generated(const std::string& text) {
  nlohmann::json object = nlohmann::json::parse(text);
  for (const char* time : {"first_token_seconds", "seconds", "tokens_per_second"}) object.erase(time);
  return object;
}

TEST_F(KillTest, GenerateLeavesItsModelAndOneObjectOrNothing) {
  write("text.txt", std::string(4000, 'a'));
  seconds_of("train --text text.txt --out m.safetensors --layers 2 --heads 2 --width 64 --context 64 --steps 1");
  const std::string line = "generate --model m.safetensors --prompt attention --tokens 300 --json";
  const double seconds = seconds_of(line, "out.json");
  const std::string whole = read(path("out.json"));
  ASSERT_FALSE(whole.empty());
  const Files before = files();
  for (int i = moments(6); i-- > 0 && !HasFailure();) {
    const End end = kill_at_random(line, 1.1 * seconds, "out.json");
    EXPECT_TRUE(end.status == 0 || end.by_signal()) << end.status;
    const std::string text = read(path("out.json"));
    EXPECT_TRUE(!text.empty() || end.status != 0);
    if (!text.empty()) {
      EXPECT_EQ(generated(text), generated(whole));
    }
    write("out.json", whole);
    EXPECT_EQ(files(), before);
  }
}

}  // namespace
}  // namespace attn::test
