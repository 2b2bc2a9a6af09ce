// Training whose texts are cut among ranks, by themselves and beside data-parallel ones.
#include "ranks/ranks.hpp"

namespace attn::test {
namespace {

class OverSequences : public OverRanks {
 protected:
  // Every step's loss.
  std::string steps(const std::string& more) const {
    std::string line = train(more + " --json --log-every 1");
    return line.erase(line.find("--dropout 0.1"), 13);
  }
  // ranks data · sequence
  std::string divided(int data, int sequence, const std::string& line) const {
    return on(data * sequence,
              line + " --ranks data=" + std::to_string(data) + ",sequence=" + std::to_string(sequence));
  }
  void expect_near(const std::vector<double>& found, const std::vector<double>& expected, const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << what << ", line " << i;
  }
};

TEST_F(OverSequences, TrainingIsNearThatOfOneProcess) {
  const auto one = losses(out_of(steps("one.safetensors")));
  ASSERT_EQ(one.size(), 12u);
  for (const auto& [data, sequence] : std::vector<std::pair<int, int>>{{1, 2}, {1, 3}, {2, 2}, {2, 4}}) {
    const char* shard = data == 1 ? "" : " --shard";
    const auto found = losses(out_of(divided(data, sequence, steps("r.safetensors --force") + shard)));
    expect_near(found, one, std::to_string(data) + " × " + std::to_string(sequence) + shard);
  }
  for (const std::string scheme : {"ring", "gather", "ulysses"}) {
    const std::string line = steps("r.safetensors --force") + " --scheme " + scheme;
    expect_near(losses(out_of(divided(1, 2, line))), one, scheme);
  }
}

// Dropout included: the ranks that share a text draw what one that has it as a whole would.
TEST_F(OverSequences, ReproducibleTrainingHasTheSameBitsOnAnyDataRanks) {
  for (const std::string rng : {"philox", "native", "mkl"}) {
    const std::string line =
        train("r.safetensors --force --json --log-every 1 --reproducible --batch 12 --until 6 --rng ") + rng;
    const auto whole = losses(out_of(line));
    const auto first = losses(out_of(divided(1, 2, line)));
    const auto bits = written("r");
    expect_near(first, whole, rng);
    for (const int data : rng == "philox" ? std::vector{2, 3, 4} : std::vector{2}) {
      out_of(divided(data, 2, line) + (data == 3 ? " --shard" : ""));
      EXPECT_EQ(written("r"), bits) << data << ", " << rng;
    }
  }
}

TEST_F(OverSequences, ARunGoesOnWithAnotherDivision) {
  const auto resume = [](const std::string& more) {
    return "attn train --text text.txt --out r.safetensors --resume --save-every 4 --json --log-every 1 " + more;
  };
  out_of(divided(3, 2, train("whole.safetensors --reproducible")));
  out_of(divided(2, 2, train("r.safetensors --reproducible --until 4")));
  out_of(divided(1, 2, resume("--until 7")));
  out_of(divided(4, 2, resume("--shard")));
  EXPECT_EQ(written("r"), written("whole"));
  // The numbers stay near where ranks take other parts of the texts.
  auto all = losses(out_of(divided(2, 2, steps("r.safetensors --force --until 4"))));
  for (const std::string& line : {divided(1, 4, resume("--until 6 --shard")), on(2, resume("--until 8")),
                                  resume("--until 10"), divided(1, 3, resume(""))}) {
    for (const double loss : losses(out_of(line))) all.push_back(loss);
  }
  expect_near(all, losses(out_of(steps("one.safetensors"))), "one process");
}

TEST_F(OverSequences, AReleasedModelGoesOn) {
  std::filesystem::copy(std::filesystem::path(ATTN_SOURCE) / "tests/lm/data/llama", path("llama"));
  write("llama/tokenizer.json", R"({"model": {"vocab": {"q": 1, "u": 2, "e": 3, "r": 4, "y": 5, " ": 6}, "merges": []},
      "decoder": {"type": "Fuse"}})");
  std::string words;
  for (int i = 0; i < 300; ++i) words += i % 3 == 0 ? "query " : "rye ";
  write("words.txt", words);
  const std::string line =
      "attn train --from llama --text words.txt --context 16 --batch 4 --steps 6 --json --log-every 1 --lr 0.01 --out ";
  const auto one = losses(out_of(line + "one"));
  ASSERT_EQ(one.size(), 6u);
  expect_near(losses(out_of(divided(2, 2, line + "cut --shard"))), one, "2 × 2");
  out_of(line + "whole --reproducible"), out_of(on(4, line + "parts --reproducible --shard"));
  EXPECT_EQ(read(path("parts/model.safetensors")), read(path("whole/model.safetensors")));
}

TEST_F(OverSequences, OneRankTellsWhatIsWrong) {
  const auto before = files();
  const std::string line = train("m.safetensors --ranks ");
  fails(on(4, line + "data=4,sequence=2"), 2,
        "rank 0 of 4: [--ranks] expected shares of 4 ranks; found 8 of data=4,sequence=2; start it by mpirun -n 8");
  for (const char* shares : {"sequence", "data=0", "data=2,data=1", "data=2,", "model=2", "data=two"}) {
    fails(on(2, line + shares), 2, "expected data=N, sequence=N or both, as in data=4,sequence=2");
  }
  fails(on(8, train("m.safetensors --context 4 --ranks sequence=8")), 2, "sequence of at most the 4 tokens of a text");
  fails(on(5, line + "data=5"), 2, "a multiple of the 5 ranks");
  fails(on(2, line + "sequence=$((rank + 1))"), 2, "the command line of rank 0");
  const Ran alone = run(line + "data=2");
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, testing::HasSubstr("expected shares of 1 rank; found 2 of data=2; start it by mpirun -n 2"));
  EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace attn::test
