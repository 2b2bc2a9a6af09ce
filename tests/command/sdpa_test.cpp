// attn sdpa: masks, alignments and ranks, by numbers that can be worked out on paper.
#include <cmath>

#include "command/command.hpp"

namespace attn::test {
namespace {

class Sdpa : public Command {
 protected:
  // One query of zeros: every key that is seen gets the same weight.
  void SetUp() override {
    Command::SetUp();
    write("q.csv", "0,0\n");
    write("k.csv", "1,2\n3,4\n5,6\n");
    write("v.csv", "3,0\n6,9\n0,0\n");
  }
  // Returns how far the result is from `expected`.
  double off(const std::string& flags, const Tensor& expected) const {
    out_of(std::string(kBase) + flags + " --output o.npy");
    return difference(io::load_tensor(path("o.npy")), expected);
  }
  static constexpr double kRounding = 1e-6;
  static constexpr const char* kBase = "attn sdpa --q q.csv --k k.csv --v v.csv ";
};

// The plan's own words are tested with the kernels.
TEST_F(Sdpa, ExplainTellsThePlan) {
  const Ran printed = run(std::string("ATTN_FORCE_ISA=scalar ") + kBase + "--explain");
  EXPECT_EQ(printed.status, 0);
  EXPECT_THAT(printed.err, HasSubstr("decode on scalar: multiply-adds of float32\n"));
  EXPECT_THAT(printed.err, HasSubstr("1 query, 3 keys, depth 2; "));
  EXPECT_THAT(out_of(std::string("ATTN_FORCE_ISA=scalar ") + kBase + "--explain --output o.npy"),
              HasSubstr("decode on scalar"));
  const auto report = nlohmann::json::parse(out_of(std::string("ATTN_FORCE_ISA=scalar ") + kBase + "--explain --json"));
  ASSERT_EQ(report["plans"].size(), 1u);
  EXPECT_EQ(report["plans"][0]["isa"], "scalar");
  EXPECT_EQ(report["plans"][0]["sizes"], "1 query, 3 keys, depth 2");
  EXPECT_FALSE(nlohmann::json::parse(out_of(std::string(kBase) + "--json")).contains("plans"));
  EXPECT_THAT(run(std::string(kBase) + "--explain --save-weights w.npy").err, HasSubstr("step by step"));
}

TEST_F(Sdpa, ZeroQueryTakesTheMean) { EXPECT_LT(off("", Tensor::of({{3, 3}})), kRounding); }

TEST_F(Sdpa, CausalAlignmentMatters) {
  EXPECT_LT(off("--causal top-left", Tensor::of({{3.0f, 0.0f}})), kRounding);
  EXPECT_LT(off("--causal bottom-right", Tensor::of({{3.0f, 3.0f}})), kRounding);
}

TEST_F(Sdpa, OffsetsMoveTheDiagonal) {
  EXPECT_LT(off("--causal top-left --query-offset 1", Tensor::of({{4.5f, 4.5f}})), kRounding);
  EXPECT_LT(off("--causal top-left --query-offset 1073741824 --key-offset 1073741823", Tensor::of({{4.5f, 4.5f}})),
            kRounding);
  EXPECT_LT(off("--causal top-left --key-offset 1", Tensor::of({{0.0f, 0.0f}})), kRounding);
  for (const char* far : {"-1", "1073741825", "9223372036854775807"}) {
    EXPECT_THAT(run(std::string(kBase) + "--causal top-left --query-offset " + far).err,
                HasSubstr("query_offset from 0 to 2^30; found " + std::string(far)));
  }
  EXPECT_EQ(run(std::string(kBase) + "--query-offset 9223372036854775808").status, 2);
  EXPECT_THAT(run(std::string(kBase) + "--causal bottom-right --key-offset 1").err, HasSubstr("aligned top_left"));
}

TEST_F(Sdpa, RelativeBiasIsByTheBucketOfADistance) {
  write("t.csv", "0\n1.38629436112\n");  // log 4 for whatever is behind
  const std::string table = "--relative-bias t.csv --relative-one-sided ";
  EXPECT_LT(off(table, Tensor::of({{3.0f, 3.0f}})), kRounding);
  EXPECT_LT(off(table + "--query-offset 2", Tensor::of({{4.0f, 4.0f}})), kRounding);
  EXPECT_THAT(run(std::string(kBase) + "--relative-bias t.csv").err, HasSubstr("at least 4 buckets"));
  EXPECT_THAT(run(std::string(kBase) + table + "--relative-max-distance 1").err, HasSubstr("max_distance past 1"));
  EXPECT_EQ(run(std::string(kBase) + "--relative-one-sided").status, 2);
}

TEST_F(Sdpa, BooleanMaskKeeps) {
  const bool keep[] = {false, true, false};
  io::save_npy(path("m.npy"), Tensor::from(std::span<const bool>(keep), {1, 3}));
  EXPECT_LT(off("--mask m.npy", Tensor::of({{6.0f, 9.0f}})), kRounding);
}

TEST_F(Sdpa, FloatMaskIsAdded) {
  write("m.csv", "0,-inf,0\n");
  EXPECT_LT(off("--mask m.csv", Tensor::of({{1.5000f, 0.0000f}})), kRounding);
}

TEST_F(Sdpa, BlocksKeepWhatTheyHold) {
  write("b.csv", "0,1\n");  // of two keys, and the third
  EXPECT_LT(off("--blocks b.csv --block-size 2", Tensor::of({{0.0f, 0.0f}})), kRounding);
  write("b.csv", "1,0\n");
  EXPECT_LT(off("--blocks b.csv --block-size 2", Tensor::of({{4.5f, 4.5f}})), kRounding);
  EXPECT_LT(off("--blocks b.csv --block-size 2 --causal top-left", Tensor::of({{3.0f, 0.0f}})), kRounding);
  const bool keep[] = {true};
  io::save_npy(path("b.npy"), Tensor::from(std::span<const bool>(keep), {1, 1}));
  EXPECT_LT(off("--blocks b.npy", Tensor::of({{3.0f, 3.0f}})), kRounding);
}

TEST_F(Sdpa, BlocksThatAreNone) {
  write("b.csv", "1,0\n");
  EXPECT_THAT(run(std::string(kBase) + "--blocks b.csv").err, HasSubstr("block_keep"));
  write("b.csv", "0.5\n");
  const Ran half = run(std::string(kBase) + "--blocks b.csv");
  EXPECT_EQ(half.status, 3);
  EXPECT_THAT(half.err, HasSubstr("[--blocks] expected zeros and ones; found 0.5"));
  EXPECT_EQ(run(std::string(kBase) + "--block-size 2").status, 2);
  EXPECT_EQ(run(std::string(kBase) + "--blocks b.csv --block-size 0").status, 2);
}

TEST_F(Sdpa, AFullyMaskedRowGivesZeros) {
  io::save_npy(path("m.npy"), Tensor::zeros({1, 3}, DType::boolean));
  EXPECT_EQ(out_of(std::string(kBase) + "--mask m.npy --lse lse.npy"), "tensor([[0., 0.]])\n");
  EXPECT_EQ(io::load_tensor(path("lse.npy")).at({0}), -INFINITY);
}

TEST_F(Sdpa, LogSumExpAndWeightsAreSaved) {
  out_of(std::string(kBase) + "--lse lse.npy --save-weights w.npy --output o.npy");
  EXPECT_EQ(io::load_tensor(path("lse.npy")).shape(), Shape{1});
  EXPECT_NEAR(io::load_tensor(path("lse.npy")).at({0}), std::log(3.0), 1e-6);
  EXPECT_LT(difference(io::load_tensor(path("w.npy")), Tensor::full({1, 3}, 1.0 / 3)), 1e-7);
  EXPECT_LT(difference(io::load_tensor(path("o.npy")), Tensor::of({{3, 3}})), 1e-6);
}

TEST_F(Sdpa, ScaleAndSoftcap) {
  write("q.csv", "1,0\n");
  write("k.csv", "1,0\n0,0\n0,0\n");
  // Scores 1 · s, 0, 0.
  const auto first_weight = [&](const std::string& flags) {
    out_of(std::string(kBase) + flags + " --save-weights w.npy --output o.npy");
    return io::load_tensor(path("w.npy")).at({0, 0});
  };
  const auto weight = [](double score) { return std::exp(score) / (std::exp(score) + 2); };
  EXPECT_NEAR(first_weight(""), weight(1 / std::sqrt(2.0)), 1e-6);
  EXPECT_NEAR(first_weight("--scale none"), weight(1), 1e-6);
  EXPECT_NEAR(first_weight("--scale -2"), weight(-2), 1e-6);
  EXPECT_NEAR(first_weight("--scale 3 --softcap 2"), weight(2 * std::tanh(1.5)), 1e-6);
}

TEST_F(Sdpa, RanksAndGroupedHeads) {
  io::save_npy(path("q.npy"), Tensor::zeros({2, 4, 3, 5}));
  io::save_npy(path("k.npy"), Tensor::ones({2, 2, 6, 5}));
  io::save_npy(path("v.npy"), Tensor::ones({2, 2, 6, 7}));
  out_of("attn sdpa --q q.npy --k k.npy --v v.npy --output o.npy --lse l.npy --save-weights w.npy");
  EXPECT_EQ(io::load_tensor(path("o.npy")).shape(), (Shape{2, 4, 3, 7}));
  EXPECT_EQ(io::load_tensor(path("l.npy")).shape(), (Shape{2, 4, 3}));
  EXPECT_EQ(io::load_tensor(path("w.npy")).shape(), (Shape{2, 4, 3, 6}));
  io::save_npy(path("q3.npy"), Tensor::zeros({4, 3, 5}));
  io::save_npy(path("k3.npy"), Tensor::ones({4, 6, 5}));
  out_of("attn sdpa --q q3.npy --k k3.npy --v k3.npy --output o.npy --lse l.npy");
  EXPECT_EQ(io::load_tensor(path("o.npy")).shape(), (Shape{4, 3, 5}));
  EXPECT_EQ(io::load_tensor(path("l.npy")).shape(), (Shape{4, 3}));
}

TEST_F(Sdpa, KeepsTheDtypeOfFloats) {
  for (const char* name : {"q", "k", "v"})
    io::save_npy(path(std::string(name) + ".npy"), Tensor::ones({3, 2}, DType::f16));
  out_of("attn sdpa --q q.npy --k k.npy --v v.npy --output o.npy");
  EXPECT_EQ(io::load_tensor(path("o.npy")).dtype(), DType::f16);
}

TEST_F(Sdpa, Json) {
  const auto report = nlohmann::json::parse(out_of(std::string(kBase) + "--json"));
  EXPECT_EQ(report["shapes"]["k"], nlohmann::json({3, 2}));
  EXPECT_NEAR(report["output"][0][1], 3, kRounding);
}

}  // namespace
}  // namespace attn::test
