// Two that write one file at the same time: it is the one's or the other's, and whole.
#include "kill/kill.hpp"

namespace attn::test {
namespace {

TEST_F(KillTest, TwoWritersLeaveOneOfTheirFiles) {
  Generator rng(1);
  io::save_npy(path("x.npy"), rng.randn({200, 32}));
  for (const char* verb :
       {"run multihead --input x.npy --output out.npy", "report multihead --input x.npy --output out.html",
        "plot multihead --input x.npy --output out.svg"}) {
    const std::string line = verb, name = line.substr(line.find("out"));
    std::vector<std::string> whole;
    for (const char* seed : {" --seed 1", " --seed 2"}) {
      seconds_of(line + seed);
      whole.push_back(read(path(name)));
    }
    const auto before = files();
    for (int i = 0; i < 10; ++i) {
      const Process one(folder(), line + " --seed 1"), other(folder(), line + " --seed 2");
      EXPECT_EQ(one.wait(), 0);
      EXPECT_EQ(other.wait(), 0);
      EXPECT_THAT(whole, testing::Contains(read(path(name)))) << line;
      EXPECT_EQ(files().size(), before.size());
    }
  }
}

}  // namespace
}  // namespace attn::test
