// Tests what a person meets in a terminal: a greeting, guesses at mistyped words, lines that fit, every option's help.
#include "attn/random.hpp"
#include "command/command.hpp"
#include "command/help.hpp"

namespace attn::test {
namespace {

class SlowTerminal : public Command {};

TEST_F(SlowTerminal, TheBareCommandGreets) {
  const Ran ran = run("attn");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, HasSubstr("attn demo"));
  for (const std::string& verb : verbs_of(out_of("attn --help"))) EXPECT_THAT(ran.out, HasSubstr("\n  " + verb));
  EXPECT_EQ(ran.err, "");
}

TEST_F(SlowTerminal, HelpIsAVerbToo) {
  EXPECT_EQ(out_of("attn help"), out_of("attn --help"));
  for (const std::string& verb : verbs_of(out_of("attn --help"))) {
    EXPECT_EQ(out_of("attn help " + verb), out_of("attn " + verb + " --help"));
  }
}

TEST_F(SlowTerminal, GuessesWhatWasMeant) {
  refused("attn trian", 2, {"\"trian\"", "did you mean train?"});
  refused("attn expl", 2, {"did you mean explain?"});
  refused("attn --versoin", 2, {"did you mean --version?"});
  refused("attn --version run", 2, {"[--version] expected no further argument; found run"});
  refused("attn --help run", 2, {"[--help] expected no further argument; found run; try attn help VERB"});
  refused("attn help sdap", 2, {"did you mean sdpa?"});
  refused("attn run casual", 2, {"did you mean causal?"});
  refused("attn run Causal", 2, {"did you mean causal?"});
  refused("attn show mutlihead", 2, {"did you mean multihead?"});
  refused("attn run causal --d_out 2", 2, {"did you mean --d-out?", "attn run --help"});
  refused("attn run causal --sede=3", 2, {"did you mean --seed?"});
  refused("attn run causal --save 3", 2, {"did you mean --save-weights?"});
  refused("attn plot causal --figure heatmpa --output x.svg", 2, {"did you mean heatmap?"});
  refused("attn show causal --colours virids", 2, {"did you mean viridis?"});
  refused("attn show causal --step weihgts", 2, {"did you mean weights?"});
  refused("attn train --text x --out m.safetensors --precision hihg", 2, {"did you mean high?"});
  refused("attn bench --isa scaler", 2, {"did you mean scalar?"});
}

TEST_F(SlowTerminal, GuessesNothingWhereNothingIsNear) {
  for (const char* line : {"attn xyzzy", "attn run causal --zzz", "attn run q", "attn show causal --step q"}) {
    const Ran ran = run(line);
    EXPECT_EQ(ran.status, 2) << line;
    EXPECT_THAT(ran.err, Not(HasSubstr("did you mean"))) << line;
  }
  // A long word is no name, and takes no time.
  refused("attn $(head -c 100000 /dev/zero | tr '\\0' t)", 2, {"there is no verb"});
}

TEST_F(SlowTerminal, TheSixWordsAreEveryModulesInput) {
  for (const char* module :
       {"simple", "average", "self-v1", "self-v2", "head", "causal", "heads", "multihead", "cross"}) {
    for (const char* verb : {"run", "explain", "show"}) out_of(std::string("attn ") + verb + " " + module);
    out_of(std::string("attn plot ") + module + " --output p.svg");
    out_of(std::string("attn report ") + module);
  }
  write_six_words();
  EXPECT_EQ(out_of("attn run causal"), out_of("attn run causal --input x.csv --tokens words.txt --d-out 2"));
}

// ---- help -------------------------------------------------------------------------------------

TEST_F(SlowTerminal, NoOptionIsListedTwice) {
  for (const std::string& verb : verbs_of(out_of("attn --help"))) {
    std::vector<std::string> seen = options_of(out_of("attn help " + verb));
    const std::size_t count = seen.size();
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    EXPECT_EQ(seen.size(), count) << verb;
  }
}

TEST_F(SlowTerminal, DescriptionsAreSentences) {
  for (const std::string& verb : verbs_of(out_of("attn --help"))) {
    for (const auto& [option, what] : described(out_of("attn help " + verb))) {
      EXPECT_TRUE(what.ends_with('.')) << verb << " " << option << ": " << what;
      EXPECT_TRUE(std::isupper(static_cast<unsigned char>(what[0])) || what[0] == '1') << verb << " " << option;
    }
  }
}

TEST_F(SlowTerminal, TrainStatesEveryDefault) {
  const std::vector<std::string> without{"--text",         "--out",  "--resume",       "--force", "--shard",
                                         "--keep-weights", "--json", "--reproducible", "--help"};
  for (const auto& [option, what] : described(out_of("attn help train"))) {
    const bool has_one = std::find(without.begin(), without.end(), option) == without.end();
    EXPECT_EQ(what.find("Default: ") != std::string::npos, has_one) << option << ": " << what;
  }
}

// ---- lines that are written over --------------------------------------------------------------

// Splits what a terminal is given into the lines that a reader sees, and each state of a line that is written over.
std::vector<std::string> states_of(const std::string& text) {
  std::vector<std::string> states(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' || text[i] == '\n') {
      states.emplace_back();
    } else if (text[i] == '\x1b') {
      i = text.find_first_of("mK", i);
    } else {
      states.back().push_back(text[i]);
    }
  }
  return states;
}

class SlowWidth : public SlowTerminal, public testing::WithParamInterface<unsigned short> {};
INSTANTIATE_TEST_SUITE_P(Of, SlowWidth, testing::Values<unsigned short>(20, 40, 80, 200),
                         testing::PrintToStringParamName());

TEST_P(SlowWidth, ProgressOfTrainingFitsTheTerminal) {
  write("text.txt", std::string(400, 'a') + "\nAttention is all you need.");
  const std::string text = on_terminal(
      "attn train --text text.txt --out m.safetensors --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps "
      "1200 --warmup 10 --eval-every 3 --save-every 5000 2>&1 >/dev/null",
      GetParam());
  std::size_t bars = 0;
  for (const std::string& state : states_of(text)) {
    if (state.find("/1200") == std::string::npos) continue;
    ++bars;
    EXPECT_LT(columns(state), GetParam()) << state;
  }
  EXPECT_GE(bars, 1000u);
  const std::string last = text.substr(text.rfind("1200/1200"));
  EXPECT_EQ(last.find("validation") != std::string::npos, GetParam() >= 80);
  EXPECT_EQ(text.find("[####") != std::string::npos, GetParam() >= 80);
}

TEST_P(SlowWidth, ProgressOfMeasuringFitsTheTerminal) {
  write("rows.txt", "forward 1,2,128,8 f32 causal+bias+alibi+softcap=20+dropout=0.1\nforward 1,2,16,8 f32 none\n");
  const std::string text =
      on_terminal("attn bench --list rows.txt --repeats 2 --threads 1 --plain 0 2>&1 >/dev/null", GetParam());
  std::vector<std::string> states = states_of(text);
  EXPECT_GE(states.size(), 5u);
  for (const std::string& state : states) EXPECT_LT(columns(state), GetParam()) << state;
  EXPECT_EQ(states.back(), "");  // nothing is left of it
}

TEST_P(SlowWidth, TextOfModulesFitsTheTerminal) {
  io::save_npy(path("q.npy"), Generator(1).randn({1, 1, 6, 9}));
  for (const char* line : {"demo", "run causal", "run multihead --d-out 8 --heads 2", "explain self-v1",
                           "explain multihead --d-out 8 --rope", "explain cross --qkv-bias", "explain average",
                           "draw randn:6,9", "sdpa --q q.npy --k q.npy --v q.npy"}) {
    const std::string text = on_terminal(std::string("attn ") + line, GetParam());
    EXPECT_GE(lines_of(text).size(), 6u) << line;
    for (const std::string& state : states_of(text)) {
      // A single word, such as "tensor([[" with its number and a label, is never broken, and may take 40 columns.
      EXPECT_LE(columns(state), std::max<int>(GetParam(), 40)) << line << "\n" << state;
    }
  }
}

TEST_P(SlowWidth, HelpAndErrorsFitTheTerminal) {
  std::vector<std::string> lines{"", "help", "run causl 2>&1", "trian 2>&1", "info /nonexistent 2>&1", "run 2>&1"};
  for (const std::string& verb : verbs_of(out_of("attn --help"))) lines.push_back("help " + verb);
  for (const std::string& line : lines) {
    const std::string text = on_terminal("attn " + line + " || true", GetParam());
    // Examples are pasted: nothing breaks them.
    for (const std::string& state : states_of(text.substr(0, text.find("\nExamples:")))) {
      EXPECT_LE(columns(state), std::max<int>(GetParam(), 40)) << line << "\n" << state;
    }
  }
}

// A line breaks before an operator, and what follows is indented.
TEST_F(SlowTerminal, ArithmeticBreaksAtItsOperators) {
  const std::string text = on_terminal("attn explain self-v1", 40);
  EXPECT_THAT(text, HasSubstr("  query_2[1] = 0.5500·0.2961\r\n      + 0.8700·0.2517"));
}

TEST_F(SlowTerminal, TrainTellsHowLongItTakesBeforeItsFirstStep) {
  write("text.txt", std::string(4000, 'a') + "\nAttention is all you need.");
  const std::string small =
      "attn train --text text.txt --out m.safetensors --force --layers 1 --width 16 --context 32 ";
  const std::string few = run(small + "--steps 20").err;
  EXPECT_THAT(few, testing::ContainsRegex("a trial step ran at [0-9]+ tokens/s: 20 steps will take about "));
  EXPECT_LT(few.find("a trial step"), few.find("step      1"));
  EXPECT_THAT(few, Not(HasSubstr("--layers")));
  const std::string many = run(small + "--steps 900000000 --minutes 0.001").err;
  EXPECT_THAT(many, HasSubstr("of which --minutes leaves 0 s"));
  const std::string large =
      run("attn train --text text.txt --out m.safetensors --force --layers 8 --width 384 --heads 6 --context 128 "
          "--batch 2 --steps 900000000 & for i in $(seq 600); do grep -q 'minutes 10' ../err && break; sleep 0.1; "
          "done; kill $!; wait $!")
          .err;
  EXPECT_THAT(large, HasSubstr("  --layers 4 --heads 4 --width 128 --context 128: about "));
  EXPECT_THAT(large, HasSubstr("  --minutes 10: stops then, and --resume goes on"));
}

// With --until the time left, and the bar, are those of the steps until there.
TEST_F(SlowTerminal, TrainCountsToItsLastStep) {
  write("text.txt", std::string(400, 'a') + "\nAttention is all you need.");
  const std::string train =
      "attn train --text text.txt --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps 100000 --until 20 ";
  EXPECT_THAT(on_terminal(train + "--out m.safetensors 2>&1 >/dev/null", 100), HasSubstr(" 20/20 "));
  EXPECT_THAT(run(train + "--out n.safetensors").err, testing::ContainsRegex("step     20  loss .*  0 s left"));
}

TEST_F(SlowTerminal, MessagesOfTrainingBreakBetweenWords) {
  write("text.txt", std::string(4000, 'a') + "\nAttention is all you need.");
  const std::string text = on_terminal(
      "attn train --text text.txt --out m.safetensors --layers 1 --heads 1 --width 8 --context 8 --steps 20 2>&1", 30);
  for (const std::string& line : states_of(text)) EXPECT_LE(columns(line), 30) << line;
  EXPECT_THAT(text, HasSubstr("\r\nm.training.safetensors,"));
}

// The trial step draws from the generator, and puts back what it took.
TEST_F(SlowTerminal, TheTrialStepChangesNothing) {
  write("text.txt", std::string(400, 'a') + "\nAttention is all you need.");
  const std::string flags =
      "attn train --text text.txt --layers 1 --heads 1 --width 8 --context 8 --batch 2 --dropout 0.3 --steps 12 ";
  out_of(flags + "--out with.safetensors");
  for (int step = 4; step <= 12; step += 4) {  // fewer steps than a trial is worth, three times
    out_of(step == 4 ? flags + "--out without.safetensors --until 4"
                     : "attn train --text text.txt --out without.safetensors --resume --until " + std::to_string(step));
  }
  EXPECT_EQ(read(path("with.safetensors")), read(path("without.safetensors")));
}

TEST_F(SlowTerminal, ColumnsOfMeasurementsAreAligned) {
  write("rows.txt",
        "forward 1,2,16,8 f32 none\nforward 1,2/1,16/200,8/24 f32 causal+softcap=20+dropout=0.1 medium\n"
        "forward 1,2,16,8 bf16 none\n");
  std::vector<std::size_t> ends;
  for (const std::string& line : lines_of(out_of("attn bench --list rows.txt --repeats 1 --threads 1 --plain 0"))) {
    if (!line.starts_with("1,2")) continue;
    ends.push_back(static_cast<std::size_t>(columns(line)));
  }
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_EQ(ends[0], ends[2]);
}

TEST_F(SlowTerminal, NegativeNumbersInArithmeticAreInParentheses) {
  for (const char* module : {"causal", "multihead", "cross", "multihead --rope --d-out 4"}) {
    const std::string text = out_of(std::string("attn explain ") + module + " --scale -0.5 --qkv-bias");
    EXPECT_THAT(text, HasSubstr("·(-"));
    EXPECT_THAT(text, HasSubstr("· (-0.5"));
    for (const char* bare : {"·-", "+ -", "- -", "/ -", "· -"}) EXPECT_THAT(text, Not(HasSubstr(bare))) << module;
    EXPECT_THAT(text, Not(testing::ContainsRegex(" -[0-9.]+·"))) << module;
  }
}

TEST_F(SlowTerminal, ABrokenFileIsToldByItsNameAndItsContent) {
  write("text.npy", "hello there");
  refused("attn info text.npy", 3, {"npy, as the name of \"text.npy\" says", "text that begins \"hello there\""});
  write("empty.safetensors", "");
  refused("attn info empty.safetensors", 3, {"safetensors, as the name", "an empty file"});
  write("zero.npz", std::string(100, '\1'));
  refused("attn run simple --input zero.npz", 3, {"npz, as the name", "bytes of another format, which begin 01 01"});
  write("numbers.bin", std::string("\x93\0\0\1", 4));
  refused("attn info numbers.bin", 3, {"npy, npz, safetensors, GGUF or CSV in \"numbers.bin\"", "begin 93 00 00 01"});
  write_six_words();
  out_of("attn run simple --input x.csv --output z.npy && head -c 140 z.npy > z.safetensors");
  refused("attn info z.safetensors", 3, {"safetensors, as the name", "npy that cannot be read: expected"});
  // A name that promises something else than what can be read is no fault.
  out_of("cp x.csv x.npy && attn info x.npy");
}

}  // namespace
}  // namespace attn::test
