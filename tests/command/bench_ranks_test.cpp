// attn bench on several ranks, by mpirun. No test depends on how fast anything is.
#include "command/command.hpp"

#ifdef ATTN_MPI_RUN
namespace attn::test {
namespace {

class BenchOnRanks : public Command {
 protected:
  static std::string on(int ranks, const std::string& flags) {
    return "sh " ATTN_MPI_RUN " " + std::to_string(ranks) + " attn bench --repeats 2 --list rows.txt " + flags;
  }
};

TEST_F(BenchOnRanks, TellsWhereTheTimeGoes) {
  write("rows.txt", "forward 1,2,64,16 f32\ntraining 1,4/2,60,16/8 bf16 causal\n");
  std::istringstream lines(out_of(on(2, "--scheme ring --json")));
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["scheme"], "ring");
    EXPECT_LE(row["fastest"], row["seconds"]);
    // Means over the ranks, of which the slowest one's time is told.
    const double parts = row["computing"].get<double>() + row["waiting"].get<double>() + row["sending"].get<double>();
    EXPECT_GT(parts, 0);
    EXPECT_LE(parts, row["seconds"].get<double>() * 1.0001);
  }
  // Half of the keys and values, and some bytes by which ranks agree.
  EXPECT_GE(rows[0]["bytes"], 2 * 2 * 32 * 16 * 4);
  EXPECT_LE(rows[0]["bytes"], 2 * 2 * 32 * 16 * 4 + 4000);
  EXPECT_EQ(rows[0]["operations"], 4.0 * 2 * 64 * 64 * 16);
  EXPECT_EQ(rows[1]["operations"], 3.5 * 2.0 * 4 * 60 * 60 / 2 * (16 + 8));
  const std::string text = out_of(on(3, "--scheme ulysses"));
  EXPECT_THAT(text, HasSubstr("3 ranks"));
  EXPECT_THAT(text, HasSubstr("ulysses"));
  EXPECT_THAT(out_of(on(1, "")), HasSubstr("one process"));
}

TEST_F(BenchOnRanks, RefusesWhatRanksDoNotShare) {
  write("rows.txt", "forward 1,2,64,16 f32\nlinear 1,768,768 f32\n");
  const Ran ran = run(on(2, ""));
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.err, HasSubstr("expected forward or training"));
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(run(on(2, "--filter forward")).status, 0);
}

}  // namespace
}  // namespace attn::test
#endif
