// attn sdpa on several ranks, by mpirun.
#include "command/command.hpp"
#include "core/testing.hpp"

#ifdef ATTN_MPI_RUN
namespace attn::test {
namespace {

class SdpaOnRanks : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    std::mt19937 rng(1);
    io::save_npy(path("q.npy"), uniform(rng, {2, 4, 37, 8}, DType::f32));
    io::save_npy(path("k.npy"), uniform(rng, {2, 2, 37, 8}, DType::f32));
    io::save_npy(path("v.npy"), uniform(rng, {2, 2, 37, 5}, DType::f32));
    io::save_npy(path("mask.npy"), uniform(rng, {37, 37}, DType::f32));
    io::save_npy(path("keys.npy"), booleans(rng, {1, 37}, 0.7));
  }
  static std::string on(int ranks, const std::string& line) {
    return "sh " ATTN_MPI_RUN " " + std::to_string(ranks) + " " + line;
  }
  void expect_one_error(const Ran& ran, int status, const std::vector<std::string>& parts) const {
    EXPECT_EQ(ran.status, status) << ran.err;
    for (const std::string& part : parts) EXPECT_THAT(ran.err, HasSubstr(part));
    const std::size_t first = ran.err.find("attn: error: ");
    ASSERT_NE(first, std::string::npos) << ran.err;
    EXPECT_EQ(ran.err.find("attn: error: ", first + 1), std::string::npos) << ran.err;
    EXPECT_THAT(ran.out, Not(HasSubstr("wrote")));
    for (const auto& [name, content] : files()) {
      EXPECT_THAT(name, Not(HasSubstr(".attn-")));
      EXPECT_THAT(name, Not(HasSubstr("out")));
    }
  }
  static constexpr const char* kBase = "attn sdpa --q q.npy --k k.npy --v v.npy ";
};

TEST_F(SdpaOnRanks, IsTheWhole) {
  for (const std::string flags : {"", "--causal top-left", "--mask mask.npy --softcap 5", "--mask keys.npy"}) {
    out_of(kBase + flags + " --output one.npy --lse one-lse.npy");
    const Tensor one = io::load_tensor(path("one.npy")), lse = io::load_tensor(path("one-lse.npy"));
    for (const std::string scheme : {"gather", "ulysses", "ring"}) {
      out_of(on(3, kBase + flags + " --scheme " + scheme + " --output out.npy --lse lse.npy"));
      if (scheme != "ring") {
        EXPECT_EQ(read(path("out.npy")), read(path("one.npy"))) << flags << " by " << scheme;
      }
      EXPECT_LT(difference(io::load_tensor(path("out.npy")), one), 1e-6) << flags << " by " << scheme;
      EXPECT_LT(difference(io::load_tensor(path("lse.npy")), lse), 1e-6) << flags << " by " << scheme;
    }
  }
}

TEST_F(SdpaOnRanks, TakesTheFormsOfOneProcess) {
  write("x.csv", "1,0\n0,1\n1,1\n2,0\n0,3\n");
  out_of("attn sdpa --q x.csv --k x.csv --v x.csv --output one.safetensors");
  const std::string said =
      out_of(on(4, "attn sdpa --q x.csv --k x.csv --v x.csv --scheme gather --output out.safetensors"));
  EXPECT_EQ(read(path("out.safetensors")), read(path("one.safetensors")));
  EXPECT_THAT(said, HasSubstr("q (5, 2), k (5, 2), v (5, 2) → (5, 2) on 4 ranks by gather"));
  const auto told = nlohmann::json::parse(out_of(on(2, std::string(kBase) + "--output out.npy --json")));
  EXPECT_EQ(told["ranks"], 2);
  EXPECT_EQ(told["shapes"]["output"], (std::vector{2, 4, 37, 5}));
  EXPECT_EQ(told["files"][0], "out.npy");
  EXPECT_THAT(told["reason"], HasSubstr("ring"));
  EXPECT_EQ(told["nonfinite"]["output"]["nan"], 0);
  out_of(on(1, std::string(kBase) + "--output out.npy"));
}

TEST_F(SdpaOnRanks, ErrorsAreToldOnce) {
  const auto call = [&](const std::string& more) { return run(on(3, kBase + more)); };
  expect_one_error(call(""), 2, {"--output", "all ranks write"});
  expect_one_error(call("--output out.npz"), 2, {"--output", ".npy, .safetensors"});
  expect_one_error(call("--output nowhere/out.npy"), 3, {"nowhere/out.npy"});
  expect_one_error(call("--output out.npy --save-weights w.npy"), 2, {"--save-weights", "one process"});
  expect_one_error(call("--output out.npy --query-offset 3"), 2, {"--query-offset"});
  expect_one_error(call("--output out.npy --no-such-flag"), 2, {"--no-such-flag"});
  expect_one_error(run(on(3, "attn sdpa --q q.npy --k k.npy --v q.npy --output out.npy")), 2, {"of one problem"});
  io::save_npy(path("short.npy"), Tensor::zeros({2, 2, 36, 5}));
  expect_one_error(run(on(3, "attn sdpa --q q.npy --k k.npy --v short.npy --output out.npy")), 3, {"(2, 2, 36, 5)"});
  io::save_npy(path("mask36.npy"), Tensor::zeros({36, 37}));
  expect_one_error(call("--mask mask36.npy --output out.npy"), 3, {"--mask", "37 queries"});
}

// Each rank runs in a folder of its own, and the last one's lacks something.
TEST_F(SdpaOnRanks, ThatDifferAreTold) {
  const std::string rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}";
  const auto each = [&](const std::string& line) { return run(on(2, "sh -c '" + line + "'")); };
  std::filesystem::create_directory(path("rank1"));
  for (const char* name : {"q.npy", "k.npy"}) std::filesystem::copy(path(name), path("rank1") / name);
  expect_one_error(each("[ " + rank + " = 0 ] || cd rank1; exec " + kBase + "--output out.npy"), 3,
                   {"rank 1 of 2", "v.npy"});
  io::save_npy(path("rank1/v.npy"), Tensor::zeros({2, 2, 37, 6}));
  expect_one_error(each("[ " + rank + " = 0 ] || cd rank1; exec " + kBase + "--output out.npy"), 2,
                   {"rank 1 of 2", "(2, 2, 37, 5)", "(2, 2, 37, 6)"});
  expect_one_error(each("exec " + std::string(kBase) + "--output out.npy --softcap 1" + rank), 2,
                   {"--softcap 10", "--softcap 11"});
  EXPECT_EQ(files().count("out.npy"), 0u);
}

}  // namespace
}  // namespace attn::test
#endif
