// A model for tests of attn experiment, and the numbers of tests/experiment/make_golden.py.
#pragma once

#include "attn/random.hpp"
#include "command/command.hpp"
#include "core/testing.hpp"

namespace attn::test {

// A small Llama whose tokens are letters and digits.
class Experiment : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    const std::filesystem::path tests = std::filesystem::path(ATTN_SOURCE) / "tests";
    std::filesystem::copy(kTests / "lm/data/llama", path("llama"));
    json vocabulary;
    for (int id = 0; id < std::ssize(kTokens); ++id) vocabulary[kTokens.substr(static_cast<std::size_t>(id), 1)] = id;
    std::ofstream(path("llama/tokenizer.json"))
        << json{{"model", {{"vocab", vocabulary}, {"merges", json::array()}}}, {"decoder", {{"type", "Fuse"}}}};
    golden_ = io::load((tests / "experiment/data/golden.safetensors").string());
  }
  Tensor golden(const std::string& name) const { return *golden_.find("llama." + name); }
  // The letters of golden ids.
  std::string text(const std::string& name) const {
    std::string letters;
    for (const double id : values(golden(name))) letters += kTokens[static_cast<std::size_t>(id)];
    return letters;
  }
  std::string line(const std::string& flags) const {
    return "attn experiment --model llama --text " + text("ids") + " " + flags;
  }
  json found(const std::string& flags) const { return json::parse(out_of(line(flags + " --json"))); }
  std::string drawn(const std::string& flags) const {
    out_of(line(flags + " --output drawn.svg"));
    return read(path("drawn.svg"));
  }
  void expect_golden(const json& numbers, const std::string& name) const {
    std::vector<double> all;
    for (const auto& row : numbers) {
      for (const auto& x : row) all.push_back(x.get<double>());
    }
    const Tensor whole = golden(name);  // of several layers, the last
    const std::vector<double> expected = values(whole.rank() == 3 ? whole.select(0, whole.size(0) - 1) : whole);
    ASSERT_EQ(all.size(), expected.size()) << name;
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], expected[i], 1e-5) << name << ' ' << i;
  }

  const std::string kTokens = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz012345678";
  io::NamedTensors golden_;
};

}  // namespace attn::test
