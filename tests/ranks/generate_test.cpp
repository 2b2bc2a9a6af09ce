// attn generate on ranks that mpirun starts: the text of one process, told once, and what goes wrong.
#include "attn/generate.hpp"

#include "attn/pretrained.hpp"
#include "ranks/ranks.hpp"

namespace attn::test {
namespace {

const std::filesystem::path kModels = kTests / "lm/data";

constexpr const char* kReleased = ATTN_SOURCE "/tests/lm/data/";

class GenerateOverRanks : public OverRanks {
 protected:
  void SetUp() override {
    OverRanks::SetUp();
    save("m.safetensors", 3);
  }

  void save(const std::string& name, std::uint64_t seed, float factor = 0.3f) const {
    Generator rng(seed);
    GPT model({.vocab_size = 256, .context_length = 16, .layers = 2, .heads = 2, .width = 16}, rng);
    for (Parameter* p : model.parameters()) {
      const Tensor noise = rng.randn(p->value.shape());
      for (std::int64_t i = 0; i < noise.numel(); ++i) p->value.data<float>()[i] += factor * noise.data<float>()[i];
    }
    save_language_model(path(name), model);
  }

  // Returns what rank 0 prints; others print nothing. (A launcher may give ranks a terminal, which escapes control
  // characters.)
  std::string printed(int ranks, const std::string& line) const {
    out_of(on(ranks, line + " >printed.$rank"));
    for (int r = 1; r < ranks; ++r) EXPECT_EQ(read(path("printed." + std::to_string(r))), "") << line;
    return read(path("printed.0"));
  }

  // Nothing is printed before an error.
  void refused(const std::string& line, int status, const std::string& part) const {
    EXPECT_EQ(fails(line, status, part).out, "") << line;
  }
};

TEST_F(GenerateOverRanks, WritesTheTextOfOneProcessOnce) {
  const std::string from_qwen = std::string("attn generate --model ") + kReleased + "qwen3 --ids 5,6,7 ";
  for (const std::string& line :
       {std::string("attn generate --model m.safetensors --prompt 'Your' --tokens 60 --temperature 0.7 --seed 8"),
        std::string("attn generate --model m.safetensors --prompt A The --tokens 9 --temperature 0 --cache int8"),
        from_qwen + "--tokens 30", from_qwen + "8,9 --tokens 20 --temperature 0 --weights bfloat16"}) {
    const std::string one = out_of(line);
    std::string quoted = line;
    for (std::size_t at = 0; (at = quoted.find('\'', at)) != std::string::npos; ++at) quoted[at] = '"';
    for (const int ranks : {1, 2, 3}) EXPECT_EQ(printed(ranks, quoted), one) << ranks;
  }
}

TEST_F(GenerateOverRanks, TellsInJsonOnce) {
  const std::string line = "attn generate --model m.safetensors --prompt A --tokens 20 --json";
  const json one = json::parse(out_of(line)), three = json::parse(out_of(on(3, line)));
  EXPECT_EQ(three["ids"], one["ids"]);
  EXPECT_EQ(three["ranks"], 3);
  EXPECT_FALSE(one.contains("ranks"));
}

// A mixture of machines: each adds up as its processor does, and takes the tokens of rank 0.
TEST_F(GenerateOverRanks, RanksMayHaveOtherProcessors) {
  const std::string line = "attn generate --model m.safetensors --prompt A --tokens 60 --temperature 0";
  EXPECT_EQ(printed(3, "ATTN_FORCE_ISA=$([ $rank = 1 ] && echo scalar) " + line), out_of(line));
}

TEST_F(GenerateOverRanks, OneRankTellsWhatIsWrong) {
  const std::string line = "attn generate --prompt A --model ";
  refused(on(3, line + "nowhere.safetensors"), 3, "rank 0 of 3: [--model]");
  refused(on(3, line + "m.safetensors --top-p 5"), 2, "[--top-p]");
  refused(on(3, line + "m.safetensors --bogus"), 2, "--bogus");
  refused(on(2, "attn generate --model m.safetensors --messages -"), 2, "expected a file, which all ranks read");
  refused(on(3, line + "m.safetensors --temperature $rank"), 2, "expected the command line of rank 0");
  refused(on(2, "attn generate --ids 1,2,3 --tokens 70 --model " + std::string(kReleased) + "llama"), 2,
          "context_length = 64");
  refused(on(2, "attn generate --ids 1,99999 --tokens 5 --model " + std::string(kReleased) + "llama"), 2, "99999");
  save("nan.safetensors", 3, std::numeric_limits<float>::infinity());
  refused(on(3, line + "nan.safetensors"), 3, "rank 0 of 3");
}

// Each rank runs in a folder of its own.
TEST_F(GenerateOverRanks, RanksWithOtherFilesAreTold) {
  for (const char* folder : {"0", "1", "2"}) std::filesystem::create_directory(path(folder));
  for (const char* folder : {"0", "1"}) std::filesystem::copy(path("m.safetensors"), path(folder) / "m.safetensors");
  const std::string line = on(3, "cd $rank && attn generate --prompt A --model m.safetensors");
  refused(line, 3, "rank 2 of 3: [--model] expected a model at m.safetensors");
  save("2/m.safetensors", 4);
  refused(line, 2, "rank 2 of 3: [ranks] expected the model of rank 0, 2 layers of 2 heads, fingerprint ");
}

TEST_F(GenerateOverRanks, AFullDiskEndsAll) {
  fails(on(3, "attn generate --prompt A --tokens 50 --model m.safetensors >/dev/full"), 3, "rank 0 of 3");
}

TEST_F(GenerateOverRanks, AKilledRankEndsAll) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = "attn generate --prompt A --tokens 100000000 --model m.safetensors >/dev/null";
  EXPECT_NE(run(on(3, "[ $rank = 1 ] && (sleep 3; kill -KILL $$) & exec " + text)).status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(GenerateOverRanks, HelpIsPrintedOnce) {
  EXPECT_EQ(out_of(on(3, "attn generate --help")), out_of("attn generate --help"));
}

}  // namespace
}  // namespace attn::test
