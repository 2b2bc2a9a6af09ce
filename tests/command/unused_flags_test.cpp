// A flag that would have no effect beside the others is refused by its name: nothing is passed over in silence.
#include <iterator>
#include <regex>
#include <set>

#include "command/command.hpp"

namespace attn::test {
namespace {

struct Unused {
  std::string line, flag;
};

// The words of a line or of an error, in one of the spellings that flags have.
std::set<std::string> words_of(const std::string& text) {
  std::istringstream in(std::regex_replace(text, std::regex("colour"), "color"));
  return {std::istream_iterator<std::string>(in), {}};
}

// What an error says that it found is what stands in the line: a word of it, unless something is missing there.
void expect_found(const std::string& error, const std::string& line) {
  std::smatch part;
  ASSERT_TRUE(std::regex_search(error, part, std::regex("expected (.*?); found ([^;\n]*)"))) << error;
  const std::string expected = part[1], found = part[2];
  const std::set<std::string> given = words_of(line), told = words_of(found);
  std::smatch beside;
  if (std::regex_match(expected, beside, std::regex("no (--[a-z-]+) beside it"))) {
    EXPECT_TRUE(given.contains(*words_of(beside[1]).begin())) << error;
    EXPECT_EQ(found, "both");
  } else if (std::regex_match(expected, beside, std::regex("(--[a-z-]+)( or --[a-z-]+)? beside it"))) {
    EXPECT_FALSE(given.contains(beside[1])) << error;
    EXPECT_EQ(found, "none");
  } else if (!std::set<std::string>{"both", "none", "one process", "standard input"}.contains(found)) {
    EXPECT_NE(found.starts_with("no "),
              std::ranges::any_of(told, [&](const auto& word) { return given.contains(word); }))
        << error;
  }
}

class UnusedFlags : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write("text.txt", std::string(400, 'a'));
    write("x.csv", "1,0,0\n0,1,0\n0.5,0.5,0\n");
    write("w.csv", "1,0,0\n0.5,0.5,0\n0.2,0.3,0.5\n");
    std::filesystem::create_directory(path("tokens"));
    write("tokens/tokenizer.json",
          R"({"model": {"vocab": {"a": 0, "b": 1}, "merges": []}, "decoder": {"type": "Fuse"}})");
    out_of("attn train --text text.txt --out m.safetensors --layers 1 --heads 1 --width 8 --context 8 --steps 1");
    out_of("attn run self-v2 --d-out 3 --input x.csv --save-weights w.safetensors --output z.npy");
  }
};

TEST_F(UnusedFlags, AreRefusedByName) {
  const std::string generate = "attn generate --model m.safetensors --tokens 2 ",
                    tokens = "attn tokens --tokenizer tokens ";
  const std::string self = "attn run self-v2 --input x.csv --d-out 3 ",
                    sdpa = "attn sdpa --q x.csv --k x.csv --v x.csv ";
  for (const Unused& unused : std::vector<Unused>{
           {generate + "--temperature 0 --top-k 3", "--top-k"},
           {generate + "--temperature 0 --top-p 0.5", "--top-p"},
           {generate + "--temperature 0 --min-p 0.5", "--min-p"},
           {generate + "--temperature 0 --seed 3", "--seed"},
           {generate + "--ids 1 --tokenizer .", "--tokenizer"},
           {generate + "--ids 1 --prompt a", "--prompt"},
           {generate + "--ids 1 --prompt-file text.txt", "--prompt-file"},
           {generate + "--prompt a --prompt-file text.txt", "--prompt-file"},
           {generate + "--prompt-file - - <text.txt", "--prompt-file"},
           {generate + "--prompt a --system b", "--system"},
           {tokens + "a --lines text.txt", "--lines"},
           {tokens + "a --decode 1", "--decode"},
           {tokens + "--decode 1 --lines text.txt", "--lines"},
           {tokens + "--decode 1 --json", "--json"},
           {tokens + "--lines text.txt --json", "--json"},
           {tokens + "--decode 1 --plain", "--plain"},
           {tokens + "--plain", "--plain"},
           {tokens + "a --chat --plain", "--plain"},
           {"attn show w.csv --json --numbers", "--numbers"},
           {"attn show w.csv --json --ascii", "--ascii"},
           {"attn show w.csv --json --width 30", "--width"},
           {"attn show w.csv --json --color always", "--color"},
           {"attn show w.csv --numbers --colours grey", "--colours"},
           {"attn show w.csv --numbers --log", "--log"},
           {"attn show w.csv --log --color-scale row", "--log"},
           {"attn show --model m.safetensors --text aa --tokens text.txt", "--tokens"},
           {"attn show --model m.safetensors --text aa --tensor weights", "--tensor"},
           {"attn plot w.csv --output w.svg --dpi 96", "--dpi"},
           {self + "--rng native", "--rng"},
           {self + "--weights w.safetensors --seed 3", "--seed"},
           {"attn run simple --input ones:2,2 --seed 4", "--seed"},
           {"attn plot --figure steps --output f.svg --colour-scale log", "--colour-scale"},
           {"attn plot --figure space --output f.svg --color-scale row", "--colour-scale"},
           {"attn plot --figure arrows --output f.svg --colour-scale diverging", "--colour-scale"},
           {"attn plot --figure lines --output f.svg --colour-scale diverging", "--colour-scale"},
           {self + "--weights w.safetensors --layer-order kqv", "--layer-order"},
           {"attn run self-v2 --tensor x", "--tensor"},
           {"attn run simple --heads 2", "--heads"},
           {"attn run self-v2 --rope-theta 9", "--rope-theta"},
           {"attn draw randn:2 --rng native", "--rng"},
           {"attn info --max-bytes 9", "--max-bytes"},
           {sdpa + "--query-offset 1", "--query-offset"},
           {sdpa + "--key-offset 1", "--key-offset"},
           {sdpa + "--block-size 2", "--block-size"},
           {sdpa + "--relative-one-sided", "--relative-one-sided"},
           {sdpa + "--scheme ring", "--scheme"},
           {"attn bench --scheme ring --list text.txt", "--scheme"},
           {"attn bench --explain --repeats 3", "--repeats"},
           {"attn bench --explain --plain 3", "--plain"},
           {"attn train --text text.txt --out n.safetensors --rng mkl", "--rng"},
           {"attn train --text text.txt --out n.safetensors --dropout 0 --rng mkl", "--rng"},
           {"attn train --text text.txt --out n.safetensors --keep-weights", "--keep-weights"},
           {"attn train --text text.txt --out n.safetensors --scheme ring", "--scheme"},
           {"attn train --text - - --out n.safetensors <text.txt", "--text"},
           {"attn train --text text.txt --out m.safetensors --resume --lr 1", "--lr"},
       }) {
    expect_found(refused(unused.line, 2, {unused.flag}), unused.line);
  }
}

// The same where each is used: what is refused above is the combination.
TEST_F(UnusedFlags, AreTakenWhereTheyAct) {
  for (const char* line :
       {"attn generate --model m.safetensors --tokens 2 --top-k 3 --top-p 0.5 --min-p 0.1 --seed 3 --prompt-file "
        "text.txt - <x.csv",
        "attn run self-v2 --input x.csv --d-out 3 --weights w.safetensors --seed 3 --dropout 0.5 --train --rng native",
        "attn run self-v2 --input randn:3,3 --d-out 3 --weights w.safetensors --seed 3",
        "attn sdpa --q x.csv --k x.csv --v x.csv --causal top-left --query-offset 1 --key-offset 1",
        "attn tokens --tokenizer tokens ab --plain --json", "attn show w.csv --numbers --color never"}) {
    EXPECT_EQ(run(line).status, 0) << line;
  }
}

// An option that takes one value refuses a second one, in several verbs.
TEST_F(UnusedFlags, ASecondValueIsRefusedByName) {
  for (const Unused& twice : std::vector<Unused>{
           {"attn generate --model m.safetensors --seed 1 --seed 2", "--seed"},
           {"attn generate --model m.safetensors --model m.safetensors", "--model"},
           {"attn show --model m.safetensors --text a --text b", "--text"},
           {"attn show w.csv --colours grey --colors grey", "--colours"},
           {"attn run self-v2 --seed=1 --seed=2", "--seed"},
           {"attn tokens --tokenizer tokens --tokenizer tokens a", "--tokenizer"},
       }) {
    refused(twice.line, 2, {twice.flag});
  }
  EXPECT_EQ(run("attn generate --model m.safetensors --tokens 1 --prompt a --prompt b").status, 0);  // a list
  EXPECT_EQ(run("attn show w.csv --ascii --ascii").status, 0);                                       // says the same
}

TEST_F(UnusedFlags, PromptsOfFilesAreTakenAsTheyStand) {
  const std::string line = "attn generate --model m.safetensors --temperature 0 --tokens 3 --json ";
  write("prompt", "aab\n\n");
  const std::string expected = out_of(line + "--prompt 'aab\n\n' | grep -v second");
  EXPECT_EQ(out_of(line + "--prompt-file prompt | grep -v second"), expected);
  EXPECT_EQ(out_of(line + "--prompt-file - <prompt | grep -v second"), expected);
  EXPECT_EQ(run(line + "--prompt-file nowhere").status, 3);
}

// Longer than any command line: one argument of Linux has at most 131,072 bytes.
TEST_F(UnusedFlags, PromptsOfFilesMayBeLong) {
  write("long", std::string(200'000, 'a'));
  EXPECT_THAT(out_of("attn generate --model m.safetensors --temperature 0 --tokens 1 --prompt-file long"),
              testing::SizeIs(testing::Ge(200'001U)));
}

}  // namespace
}  // namespace attn::test
