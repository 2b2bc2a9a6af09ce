// Integer options at the ends of their range: the command works, or says what it expected or that
// there is no memory for it, and no number turns round.
#include "command/command.hpp"

namespace attn::test {
namespace {

class Extremes : public Command {
 protected:
  // `line` with an option's value in place of the one that it has, or at its end.
  static std::string with(std::string line, const std::string& option, const std::string& value) {
    if (const auto at = line.find(option + " "); at != line.npos) {
      const auto end = line.find(' ', at + option.size() + 1);
      line.erase(at, end == line.npos ? line.npos : end + 1 - at);
    }
    return line + " " + option + "=" + value;
  }

  // `line` with each of the options at each end of int64's range.
  void try_all(const std::string& line, std::initializer_list<const char*> options) const {
    for (const char* option : options) {
      for (const char* value : {"9223372036854775807", "9223372036854775806", "4611686018427387904", "0", "-1",
                                "-4611686018427387905", "-9223372036854775808", "9223372036854775808"}) {
        const std::string whole = with(line, option, value);
        const Ran ran = run(whole);
        EXPECT_TRUE(ran.status >= 0 && ran.status <= 3) << whole << " → " << ran.status << "\n" << ran.err;
        EXPECT_THAT(ran.err, Not(HasSubstr("runtime error"))) << whole;  // as the sanitizer says it
        if (value[0] != '-') {
          EXPECT_THAT(ran.err, Not(HasSubstr("-9223372036854775"))) << whole;
        }
        if (ran.status != 0) {
          EXPECT_THAT(ran.err, testing::AnyOf(HasSubstr("expected"), HasSubstr("out of memory"))) << whole;
        }
      }
    }
  }
};

TEST_F(Extremes, OfTheOperator) {
  write("q.csv", "1,0\n0,1\n1,1\n");
  write("blocks.csv", "1\n");
  try_all("attn sdpa --q q.csv --k q.csv --v q.csv --blocks blocks.csv", {"--block-size"});
}

TEST_F(Extremes, OfModules) {
  write("x.csv", "1,0\n0,1\n1,1\n");
  try_all("attn run multihead --input x.csv --d-out 2 --heads 1", {"--d-out", "--heads", "--context-length", "--seed"});
  try_all("attn explain multihead --input x.csv --d-out 2 --heads 1", {"--query", "--head"});
  try_all("attn show multihead --input x.csv --d-out 2 --heads 1", {"--head", "--layer"});
}

TEST_F(Extremes, OfTraining) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "key and value ";
  write("text.txt", text);
  const std::string small =
      "rm -f m.*; OMP_NUM_THREADS=1 attn train --text text.txt --out m.safetensors --layers 1 --heads 1 "
      "--width 4 --context 4 --batch 1";
  try_all(small + " --until 1", {"--heads", "--width", "--context", "--steps", "--batch", "--warmup", "--eval-every",
                                 "--save-every", "--log-every", "--seed"});
  try_all(small + " --steps 1", {"--until"});
  const Ran ran = run(with(small, "--context", "9223372036854775807"));
  EXPECT_THAT(ran.err, HasSubstr("more than 9223372036854775807 tokens"));
}

}  // namespace
}  // namespace attn::test
