// attn bench: what it times, what it tells, and what it refuses. No test depends on how fast anything is.
#include <algorithm>
#include <regex>
#include <sstream>
#include <vector>

#include "command/command.hpp"
#include "command/help.hpp"

namespace attn::test {
namespace {

using testing::AllOf;

class SlowBench : public Command {
 protected:
  // The rows of one list, without the limits.
  std::vector<json> rows(const std::string& list, const std::string& flags = "") const {
    write("rows.txt", list);
    std::vector<json> found = objects("attn bench --json --repeats 1 --threads 1 --list rows.txt " + flags);
    std::erase_if(found, [](const json& row) { return row["op"] == "limit"; });
    return found;
  }
  // One object a line.
  std::vector<json> objects(const std::string& line) const {
    std::istringstream text(out_of(line));
    std::vector<json> found;
    for (std::string each; std::getline(text, each);) found.push_back(json::parse(each));
    return found;
  }
  std::string complaint(const std::string& list, int status = 3) const {
    write("bad.txt", list);
    const Ran ran = run("attn bench --threads 1 --repeats 1 --list bad.txt");
    EXPECT_EQ(ran.status, status) << list;
    EXPECT_EQ(ran.out, "");
    return ran.err;
  }
};

TEST_F(SlowBench, ReadsItsListAsOtherFilesAreRead) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const Ran pipe = run("timeout 20 attn bench --list pipe");  // and does not wait for a writer
  EXPECT_EQ(pipe.status, 3);
  EXPECT_NE(pipe.err.find("a pipe or device"), std::string::npos) << pipe.err;
  EXPECT_EQ(run("attn bench --list .").status, 3);
  EXPECT_EQ(run("attn bench --list missing").status, 3);
  const Ran endless = run("timeout 20 attn bench --list - </dev/zero");
  EXPECT_EQ(endless.status, 3);
  EXPECT_NE(endless.err.find("at most 1000000 bytes"), std::string::npos) << endless.err;
  EXPECT_EQ(objects("echo 'forward 1,1,4,4 f32' | attn bench --json --repeats 1 --threads 1 --list -").back()["op"],
            "forward");
}

TEST_F(SlowBench, ExplainTellsThePlansOfEveryRow) {
  write("rows.txt", "training 1,2,64,16 f32 causal\ncache 1,2,1/300,64 i8\nmodule 1,6,4,2 f32\n");
  const std::string line = "attn bench --explain --isa scalar --list rows.txt";
  const std::string text = out_of(line);
  for (const char* part :
       {"training 1,2,64,16 f32 causal", "forward on scalar", "backward on scalar", "decode on scalar",
        "1 query, 300 keys, depth 64", "on scalar: multiply-adds of float32", "6 queries, 6 keys"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("GFLOP")));
  const std::vector<json> rows = objects(line + " --json");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["op"], "training");
  EXPECT_EQ(rows[0]["plans"][1]["call"], "backward");
  EXPECT_EQ(rows[1]["plans"][0]["call"], "decode");
}

TEST_F(SlowBench, ExplainTellsHowTasksShareOutOverThreadsThatAreNotThere) {
  write("rows.txt", "forward 1,2,2000,16 f32 causal\nlinear 600,64,64 f32\n");
  const std::string line = "attn bench --explain --isa scalar --list rows.txt --threads 1,96";
  EXPECT_THAT(out_of(line), AllOf(HasSubstr("on 1 thread: "), HasSubstr("on 96 threads: "), HasSubstr(" % busy\n"),
                                  HasSubstr("predicted on 96 threads: "), HasSubstr(" times as long\n")));
  const std::vector<json> rows = objects(line + " --json");
  ASSERT_EQ(rows.size(), 4u);  // two rows on one thread and on 96
  for (std::size_t i = 0; i < 4; ++i) {
    const json &row = rows[i], &plan = row["plans"][0];
    EXPECT_EQ(row["threads"], i % 2 == 0 ? 1 : 96);
    EXPECT_GT(row["predicted_ms"].get<double>(), 0);
    EXPECT_GT(row["one_ms"].get<double>(), 0);
    if (i % 2 == 0) {
      EXPECT_GE(plan["waves"], plan["tasks"]);  // and of packing
      EXPECT_EQ(plan["busy"], 1);
    } else {
      EXPECT_LT(plan["waves"], plan["tasks"]);
      EXPECT_LE(plan["busy"].get<double>(), 1);
    }
  }
  EXPECT_GT(rows[1]["plans"][0]["tasks"], rows[0]["plans"][0]["tasks"]) << "cut more finely for more threads";
  EXPECT_THAT(run(line + ",1025").err, HasSubstr("[--threads] expected all, or counts from 1 to 1024"));
}

TEST_F(SlowBench, LinearHasABiasOrNone) {
  const auto found = rows("linear 3,4,5 f32\nlinear 3,4,5 f32 no-bias\nlinear-training 3,4,5 f32 no-bias\n");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["mask"], "none");
  for (const std::size_t i : {1u, 2u}) {
    EXPECT_EQ(found[i]["mask"], "no-bias");
    EXPECT_GT(found[i]["plain_ms"].get<double>(), 0);
  }
}

// Where the processor has products of bfloat16, the plan of a call names the precision that it was asked for; the row
// itself only repeats the words of its line.
TEST_F(SlowBench, EveryOpIsTimedAtThePrecisionOfItsRow) {
  const auto tells = [this](const std::string& op, const char* precision) {
    write("rows.txt", op + " f32 none " + precision + "\n");
    return out_of("attn bench --explain --list rows.txt").find("medium precision: ") != std::string::npos;
  };
  const bool told = tells("forward 1,2,64,64", "medium");
  for (const char* op : {"forward 1,2,64,64", "backward 1,2,64,64", "training 1,2,64,64", "linear 600,64,64",
                         "linear-training 600,64,64", "module 1,60,64,2", "module-training 1,60,64,2"}) {
    EXPECT_EQ(tells(op, "medium"), told) << op;
    EXPECT_FALSE(tells(op, "highest")) << op;
  }
}

TEST_F(SlowBench, ARowTellsEverything) {
  const auto found = rows("forward 1,2,8,4 f32 causal\n");
  ASSERT_EQ(found.size(), 1u);
  const json& row = found[0];
  EXPECT_EQ(row["op"], "forward");
  EXPECT_EQ(row["shape"], "1,2,8,4");
  EXPECT_EQ(row["dtype"], "f32");
  EXPECT_EQ(row["mask"], "causal");
  EXPECT_EQ(row["precision"], "highest");
  EXPECT_EQ(row["threads"], 1);
  EXPECT_EQ(row["bound"], "f32");
  for (const char* key : {"ms", "fastest_ms", "plain_ms", "gflops", "limit", "share"}) {
    EXPECT_GT(row[key].get<double>(), 0) << key;
  }
  EXPECT_TRUE(row["gbps"].is_null());
  EXPECT_LE(row["fastest_ms"].get<double>(), row["ms"].get<double>());
}

TEST_F(SlowBench, RatesFollowFromTheTime) {
  const auto operations = [](const json& row) { return row["gflops"].get<double>() * row["ms"].get<double>() * 1e6; };
  const auto found = rows(
      "forward  2,4/2,6/10,8/16  f32 none\n"  // 2 · 2·4·6·10 · (8 + 16)
      "forward  1,2,8,4          f32 causal\n"
      "backward 1,2,8,4          f32 none\n"
      "training 1,2,8,4          f32 none\n"
      "forward  1,1,4,2          f32 window=1\n"  // 1 + 2 + 2 + 2 keys
      "linear   3,4,5            f32\n"
      "decode   1,2,1/64,8       bf16 none\n"
      "module   2,8,4,2          f32 causal\n"
      "cache    1,2,3/64,8       f16 causal-br\n");  // 62, 63 and 64 keys
  ASSERT_EQ(found.size(), 9u);
  const double forward = 4.0 * 2 * 8 * 8 * 4;
  const double expected[] = {2.0 * 2 * 4 * 6 * 10 * 24,
                             forward / 2,
                             2.5 * forward,
                             3.5 * forward,
                             4.0 * 7 * 2,
                             2.0 * 3 * 4 * 5,
                             4.0 * 2 * 64 * 8,
                             4 * 2.0 * 2 * 8 * 4 * 4 + 4.0 * 2 * 8 * 8 * 4 / 2,
                             4.0 * 2 * (62 + 63 + 64) * 8};
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(operations(found[i]) / expected[i], 1, 1e-9) << found[i];
    const char* rate = found[i]["bound"] == "read" ? "gbps" : "gflops";
    const double share = found[i][rate].get<double>() / found[i]["limit"].get<double>();
    EXPECT_NEAR(found[i]["share"].get<double>() / share, 1, 1e-9) << found[i];
  }
  const json& decode = found[6];
  EXPECT_NEAR(decode["gbps"].get<double>() * decode["ms"].get<double>() * 1e6, 2.0 * 2 * 64 * 8 * 2, 1e-6);
}

TEST_F(SlowBench, EveryMaskAndOpRuns) {
  std::string list;
  for (const char* mask :
       {"none", "causal", "causal-br", "window=2", "lengths", "keep", "bias", "alibi", "relative", "sinks", "softcap=5",
        "dropout=0.5", "dropout-keep=0.5", "blocks=0.5", "score", "score+blocks=0", "causal+keep+softcap=2"}) {
    list.append("forward 2,2,5/7,3 f32 ").append(mask).append("\n");
    list.append("backward 2,2,5/7,3 f32 ").append(mask).append("\n");
  }
  list += "forward 1,1,4,4 bf16\nforward 1,1,4,4 f16 # a comment\n\n# another\nlinear-training 3,4,5 f32\n";
  list += "module-training 1,4,4,2 f32 causal\n";
  list += "cache 1,4/2,1/70,8 i8\ncache 2,2,3/70,8/4 f16 keep\ncache-paged 1,4/2,1/70,8 bf16 causal-br\n";
  list += "forward 1,1,4,4 f32 none high\nbackward 1,1,4,4 f32 none medium\n";
  EXPECT_EQ(rows(list).size(), 43u);
}

TEST_F(SlowBench, BlocksAreCountedAsKept) {
  const auto operations = [](const json& row) { return row["gflops"].get<double>() * row["ms"].get<double>() * 1e6; };
  const auto found = rows("forward 1,1,200/300,2 f32 blocks=1\nforward 1,1,200/300,2 f32 blocks=0\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(operations(found[0]), 4.0 * 200 * 300 * 2, 1);
  EXPECT_TRUE(found[1]["gflops"].is_null());
}

TEST_F(SlowBench, PlainSecondsSayWhereThePlainPathIsTimed) {
  const std::string list = "forward 1,1,64,64 f32\n";  // 1e6 operations, about a millisecond
  EXPECT_GT(rows(list)[0]["plain_ms"].get<double>(), 0);
  EXPECT_TRUE(rows(list, "--plain 0.0001")[0]["plain_ms"].is_null());
  EXPECT_EQ(run("attn bench --plain -1").status, 2);
}

TEST_F(SlowBench, LimitsComeFirst) {
  write("rows.txt", "forward 1,1,4,4 f32\n");
  const auto found = objects("attn bench --json --repeats 1 --threads 1 --list rows.txt --isa scalar");
  ASSERT_EQ(found.size(), 3u);  // no bf16 multiply-adds in "scalar"
  EXPECT_EQ(found[0]["op"], "limit");
  EXPECT_EQ(found[0]["shape"], "multiply-add");
  EXPECT_EQ(found[1]["shape"], "read");
  EXPECT_EQ(found[2]["limit"], found[0]["limit"]);
  // What is read fits no cache; a sixteenth of it is read by one call, which so finds it cold.
  const double bytes = 16 * found[1]["gbps"].get<double>() * found[1]["ms"].get<double>() * 1e6;
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  EXPECT_GE(bytes, std::min(500e6, memory / 64));
  for (const json& row : found) EXPECT_EQ(row["isa"], "scalar");
}

TEST_F(SlowBench, FilterTakesRowsWithEveryWord) {
  const std::string list = "forward 1,1,4,4 f32 causal\nforward 1,1,4,4 bf16 causal\nbackward 1,1,4,4 f32 none\n";
  EXPECT_EQ(rows(list, "--filter f32").size(), 2u);
  const auto found = rows(list, "--filter 'causal bf16'");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["dtype"], "bf16");
  const Ran ran = run("attn bench --list rows.txt --filter 'bf16 backward'");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("expected a row to time; found none with \"bf16 backward\""));
}

TEST_F(SlowBench, TableFitsEightyColumns) {
  write("rows.txt", "forward 1,32/8,1000/1000,64 f32 window=512\ndecode 1,32/8,1/1024,64 bf16\nforward 1,1,6,2 f32\n");
  const Ran ran = run("attn bench --repeats 1 --list rows.txt");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");  // progress is for terminals
  EXPECT_THAT(ran.out, AllOf(HasSubstr("forward, 1 thread\n"), HasSubstr("decode, 1 thread\n"),
                             HasSubstr("reads, GB/s"), HasSubstr("1,1,6,2"), Not(HasSubstr("\x1b"))));
  expect_layout(ran.out);
  const std::regex time("([0-9.]+) (?:µs|ms|s)\\b");  // of three digits, or of four where it is rounded up
  for (std::sregex_iterator at(ran.out.begin(), ran.out.end(), time), end; at != end; ++at) {
    const std::string number = (*at)[1];
    const auto digits = std::ranges::count_if(number, [](char c) { return c != '.'; });
    EXPECT_TRUE(digits == 3 || digits == 4) << number << "\n" << ran.out;
  }
}

TEST_F(SlowBench, TheListThatComesWithItIsRead) {
  const auto found = objects("attn bench --json --repeats 1 --threads 1 --filter 'forward 1,1,6,2 f32 none'");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.back()["shape"], "1,1,6,2");
}

TEST_F(SlowBench, BadRowsAreNamedByLine) {
  EXPECT_THAT(
      complaint("# first\nforwards 1,1,4,4 f32\n"),
      AllOf(HasSubstr("[bad.txt:2]"), HasSubstr("found \"forwards 1,1,4,4 f32\""), HasSubstr("one of forward")));
  EXPECT_THAT(complaint("forward 1,1,4 f32\n"), HasSubstr("b,h,t,d"));
  EXPECT_THAT(complaint("forward 1,3/2,4,4 f32\n"), HasSubstr("multiple"));
  EXPECT_THAT(complaint("forward 1/2,2,4,4 f32\n"), HasSubstr("b,h,t,d"));
  EXPECT_THAT(complaint("forward 1,1,4,0 f32\n"), HasSubstr("sizes from 1"));
  EXPECT_THAT(complaint("forward 1,1,4,4x f32\n"), HasSubstr("sizes from 1"));
  EXPECT_THAT(complaint("forward 1,1,99999999999999999999,4 f32\n"), HasSubstr("sizes from 1"));
  EXPECT_THAT(complaint("forward 1,1,4/5/6,4 f32\n"), HasSubstr("two sizes"));
  for (const char* dtype : {"f64", "float32", "i64", "F32"}) {
    EXPECT_THAT(complaint(std::string("forward 1,1,4,4 ") + dtype + "\n"), HasSubstr("f32, bf16, f16 or i8"));
  }
  EXPECT_THAT(complaint("forward 1,1,4,4 i8\n"), HasSubstr("cache and cache-paged only"));
  EXPECT_THAT(complaint("cache 1,1,1/4,4 i8 lengths\n"), HasSubstr("a cache has its own"));
  EXPECT_THAT(complaint("forward 1,1,4,4 f32 casual\n"), HasSubstr("found casual"));
  EXPECT_THAT(complaint("forward 1,1,4,4 f32 window\n"), HasSubstr("window=N"));
  EXPECT_THAT(complaint("forward 1,1,4,4 f32 window=-1\n"), HasSubstr("window=N"));
  for (const char* mask :
       {"dropout=2", "dropout-keep=2", "blocks=1.5", "causal+causal", "softcap=1+softcap=2", "none+causal"}) {
    const std::string row = "forward 1,1,4,4 f32 " + std::string(mask);
    EXPECT_THAT(complaint("forward 1,1,4,4 f32\n" + row + "\n"),
                AllOf(HasSubstr("[bad.txt:2]"), HasSubstr("found \"" + row + "\"; [")));
  }
  EXPECT_THAT(complaint("forward 1,1,4,4 f32 none lowest\n"), HasSubstr("highest, high or medium"));
  EXPECT_THAT(complaint("cache 1,1,1/4,4 f32 none high\n"), HasSubstr("expected highest"));
  EXPECT_THAT(complaint("forward 1,1,4,4\n"), HasSubstr("op shape dtype"));
  EXPECT_THAT(complaint("module 1,4,4,2 bf16\n"), HasSubstr("expected f32"));
  EXPECT_THAT(complaint("module 1,4,4,2 f32 keep\n"), HasSubstr("none or causal"));
  EXPECT_THAT(complaint("linear 1,4,5 f32 causal\n"), HasSubstr("none or no-bias"));
  EXPECT_THAT(complaint("module 1,4,5,2 f32\n"), HasSubstr("a multiple of heads"));
  EXPECT_THAT(complaint("forward 4096,4096,16777216,4096 f32\n", 2), HasSubstr("memory"));
  EXPECT_THAT(complaint("# nothing\n", 2), HasSubstr("an empty list"));
}

TEST_F(SlowBench, BadFlagsAreRefused) {
  EXPECT_THAT(run("attn bench --threads 0").err, HasSubstr("[--threads] expected all, or counts from 1 to"));
  EXPECT_THAT(run("attn bench --threads 1,100000").err, HasSubstr("found 100000"));
  EXPECT_THAT(run("attn bench --threads ''").err, HasSubstr("--threads"));
  EXPECT_THAT(run("attn bench --isa mmx").err, HasSubstr("[--isa] expected an instruction set of this processor"));
  EXPECT_THAT(run("attn bench --list nowhere.txt").err, HasSubstr("[--list] expected a file to read"));
  EXPECT_EQ(run("attn bench --list nowhere.txt").status, 3);
  EXPECT_EQ(run("attn bench --repeats 0").status, 2);
  EXPECT_EQ(run("attn bench --isa mmx").status, 2);
}

}  // namespace
}  // namespace attn::test
