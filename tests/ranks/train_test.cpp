// attn train on ranks that mpirun starts: the bits of one process, resumed on other ranks, and what goes wrong.
#include "attn/train.hpp"

#include <algorithm>

#include "ranks/ranks.hpp"

namespace attn::test {
namespace {

TEST_F(OverRanks, ReproducibleTrainingHasTheBitsOfOneProcess) {
  out_of("OMP_NUM_THREADS=1 " + train("one.safetensors --reproducible"));
  const auto one = written("one");
  EXPECT_GT(one[1].size(), 1000u);
  out_of("OMP_NUM_THREADS=2 " + train("two.safetensors --reproducible"));
  EXPECT_EQ(written("two"), one) << "on two threads";
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const char* shard : {"", " --shard", " --shard --keep-weights"}) {
      if (ranks != 3 && std::string(shard).ends_with("--keep-weights")) continue;
      out_of(on(ranks, train("r.safetensors --force --reproducible") + shard));
      EXPECT_EQ(written("r"), one) << ranks << shard;
    }
  }
}

TEST_F(OverRanks, ARunGoesOnWithOtherRanks) {
  out_of(train("whole.safetensors --reproducible"));
  const std::string resume = "attn train --text text.txt --out r.safetensors --resume --save-every 4 ";
  out_of(on(4, train("r.safetensors --reproducible --shard --until 3")));
  out_of(on(2, resume + "--until 6 --shard --keep-weights"));
  out_of(resume + "--until 7");
  out_of(on(3, resume + "--shard"));
  EXPECT_EQ(written("r"), written("whole"));
}

// Without --reproducible the numbers are the same but for rounding.
TEST_F(OverRanks, PlainTrainingIsNearThatOfOneProcess) {
  const std::string same = " --dropout 0 --json";
  const auto plain = [&](const std::string& out) { return train(out + same); };
  const auto one = losses(out_of(plain("one.safetensors")));
  ASSERT_GE(one.size(), 3u);
  for (const char* shard : {"", " --shard"}) {
    const auto four = losses(out_of(on(4, plain("r.safetensors --force") + shard)));
    ASSERT_EQ(four.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 1e-5) << i << shard;
  }
}

TEST_F(OverRanks, OneRankTellsWhatIsWrong) {
  const auto before = files();
  fails(on(3, train("m.safetensors --bogus")), 2, "--bogus");
  fails(on(3, train("m.safetensors --seed $rank")), 2, "rank 1 of 3: [ranks] expected the command line of rank 0");
  fails(on(2, train("m.safetensors --precision $([ $rank = 0 ] && echo high || echo medium)")), 2, "medium");
  fails(on(5, train("m.safetensors")), 2, "a multiple of the 5 ranks");
  fails(on(2, train("m.safetensors --keep-weights")), 2, "--shard beside it");
  fails(on(2, "ATTN_FORCE_ISA=$([ $rank = 0 ] || echo scalar) " + train("m.safetensors")), 2, "instruction set");
  fails(on(2, "attn train --text - --out m.safetensors"), 2, "standard input");
  EXPECT_EQ(files(), before);
  // Only rank 2 has no text; only rank 1 has another.
  for (const char* folder : {"0", "1", "2"}) std::filesystem::create_directory(path(folder));
  const std::string in_folders = "cd $rank && " + train("../m.safetensors");
  write("0/text.txt", read(path("text.txt"))), write("1/text.txt", read(path("text.txt")));
  fails(on(3, in_folders), 3, "rank 2 of 3: [--text]");
  write("2/text.txt", read(path("text.txt"))), write("1/text.txt", read(path("text.txt")) + "more");
  fails(on(3, in_folders), 2, "rank 1 of 3: [ranks] expected the tokens of --text of rank 0");
  for (const char* folder : {"0", "1", "2"}) std::filesystem::remove_all(path(folder));
  EXPECT_EQ(files(), before);
}

// Weights say nothing of their config: each rank would compute another model.
TEST_F(OverRanks, RanksWithOtherConfigsAreTold) {
  std::string config = read(std::filesystem::path(ATTN_SOURCE) / "tests/lm/data/llama/config.json");
  const auto change = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(config.find(from), std::string::npos) << from;
    config.replace(config.find(from), from.size(), to);
  };
  change("\"vocab_size\": 61", "\"vocab_size\": 256");
  std::filesystem::create_directory(path("0")), std::filesystem::create_directory(path("1"));
  write("0/config.json", config);
  change("\"rope_theta\": 10000.0", "\"rope_theta\": 50000.0");
  write("1/config.json", config);
  fails(on(2,
           "cd $rank && attn train --config config.json --text ../text.txt --context 16 --batch 4 --steps 2 "
           "--out ../m.safetensors"),
        2, "rank 1 of 2: [ranks] expected the model, its settings and its state of rank 0");
  EXPECT_FALSE(std::filesystem::exists(path("m.safetensors")));
}

// Weights alone do not say how a run goes on.
TEST_F(OverRanks, RanksWithOtherStatesOfTheOptimizerAreTold) {
  std::filesystem::create_directory(path("0")), std::filesystem::create_directory(path("1"));
  out_of(train("0/m.safetensors --until 2"));
  TrainCheckpoint other = TrainCheckpoint::load(path("0/m.training.safetensors"));
  Tensor& mean = std::find_if(other.optimizer.begin(), other.optimizer.end(), [](const auto& one) {
                   return one.first.starts_with("exp_avg.");
                 })->second;
  mean = mean.clone();
  mean.data<float>()[0] += 1;
  other.save(path("1/m.training.safetensors"));
  fails(on(2, "cd $rank && attn train --text ../text.txt --out m.safetensors --resume"), 2,
        "rank 1 of 2: [ranks] expected the model, its settings and its state of rank 0");
}

TEST_F(OverRanks, AModelThatIsThereIsKept) {
  out_of(on(2, train("m.safetensors")));
  const auto before = files();
  fails(on(2, train("m.safetensors")), 2, "rank 0 of 2: [--out] expected no model there yet");
  fails(on(2, train("m.safetensors --resume")), 2, "--resume");
  fails(on(2, "attn train --text text.txt --out none.safetensors --resume"), 3, "none.training.safetensors");
  EXPECT_EQ(files(), before);
}

TEST_F(OverRanks, DivergenceIsToldOnce) { fails(on(4, train("m.safetensors --weight-decay 1e30")), 3, "finite"); }

TEST_F(OverRanks, HelpIsPrintedOnce) {
  const std::string help = out_of(on(3, "attn train --help"));
  EXPECT_EQ(help, out_of("attn train --help"));
}

}  // namespace
}  // namespace attn::test
