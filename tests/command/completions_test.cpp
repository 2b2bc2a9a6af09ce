// Completions in real shells, and manual pages: both are made from the options that --help tells of.
#include "command/command.hpp"
#include "command/help.hpp"

namespace attn::test {
namespace {

class Completions : public Command {
 protected:
  bool has(const std::string& program) const { return run("command -v " + program).status == 0; }

  // Every verb, and every option of every verb: --seed, without what follows it.
  void expect_all(const std::string& text, const std::string& shell) const {
    for (const std::string& verb : verbs_of(out_of("attn --help"))) {
      EXPECT_THAT(text, HasSubstr(verb)) << shell;
      for (const std::string& name : options_of(out_of("attn help " + verb))) {
        const std::string bare = name.substr(name.find_first_not_of('-'));
        EXPECT_THAT(text, HasSubstr(shell == "fish" ? (name.starts_with("--") ? "-l " : "-s ") + bare : name)) << verb;
      }
    }
  }

  // Returns what bash replies to a line of words, of which it completes the last.
  std::string in_bash(const std::string& words) const {
    write("reply.sh", ". ./attn.bash\nCOMP_WORDS=(" + words +
                          ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_attn\nprintf '%s ' \"${COMPREPLY[@]}\"\n");
    return out_of("bash reply.sh");
  }
};

TEST_F(Completions, OfBash) {
  out_of("attn completions bash > attn.bash");
  expect_all(read(path("attn.bash")), "bash");
  EXPECT_EQ(in_bash("attn tr"), "train ");
  EXPECT_THAT(in_bash("attn ''"), HasSubstr("demo run explain show"));
  EXPECT_EQ(in_bash("attn run c"), "causal cross ");
  EXPECT_EQ(in_bash("attn run causal --save-"), "--save-weights --save-steps ");
  EXPECT_EQ(in_bash("attn run causal --rng ''"), "mkl native ");
  EXPECT_EQ(in_bash("attn run causal --rng = n"), "native ");
  EXPECT_EQ(in_bash("attn help dr"), "draw ");
  EXPECT_EQ(in_bash("attn completions z"), "zsh ");
  EXPECT_EQ(in_bash("attn run causal --input x"), " ");  // files: bash's own
  EXPECT_THAT(in_bash("attn bench ''"), HasSubstr("--threads"));
}

TEST_F(Completions, OfFish) {
  out_of("attn completions fish > attn.fish");
  expect_all(read(path("attn.fish")), "fish");
  if (!has("fish")) return;
  write("x.csv", "");
  const auto reply = [&](const std::string& line) {
    return out_of("HOME=$PWD fish -N -c 'source attn.fish; complete -C \"" + line + "\"' | cut -f1 | tr '\\n' ' '");
  };
  EXPECT_EQ(reply("attn tr"), "train ");
  EXPECT_EQ(reply("attn run c"), "causal cross ");
  EXPECT_EQ(reply("attn run --save-"), "--save-steps --save-weights ");
  EXPECT_EQ(reply("attn run causal --rng "), "mkl native ");
  EXPECT_EQ(reply("attn run causal --input x"), "x.csv ");
  EXPECT_EQ(reply("attn run causal --seed "), "");
  EXPECT_EQ(reply("attn help dr"), "draw ");
}

TEST_F(Completions, SlowOfZsh) {
  out_of("attn completions zsh > _attn");
  expect_all(read(path("_attn")), "zsh");
  EXPECT_EQ(read(path("_attn")).substr(0, 13), "#compdef attn");
  if (!has("zsh")) return;
  // A shell in a terminal of its own, in which a word and a tab are typed.
  write("type.zsh",
        "zmodload zsh/zpty\n"
        "zpty shell 'TERM=dumb zsh -f -i'\n"
        "zpty -w shell \"fpath=($PWD \\$fpath); PS1='> '; autoload -U compinit; compinit -u -D; echo rea''dy\"\n"
        "zpty -r shell line '*ready*'\n"
        "zpty -w -n shell \"$1\"$'\\t'\n"
        "sleep 1\n"
        "zpty -w -n shell $'\\x15exit\\n'\n"
        "while zpty -r shell line; do print -rn -- \"$line\"; done\n");
  const auto typed = [&](const std::string& line) { return out_of("timeout 60 zsh -f type.zsh '" + line + "'"); };
  EXPECT_THAT(typed("attn tr"), HasSubstr("ain "));
  EXPECT_THAT(typed("attn run caus"), HasSubstr("causal "));
  EXPECT_THAT(typed("attn run --save-st"), HasSubstr("--save-steps="));
  EXPECT_THAT(typed("attn run --rng "), testing::ContainsRegex("mkl +native"));
}

TEST_F(Completions, ManualPagesTellWhatHelpTells) {
  for (std::string verb : verbs_of(out_of("attn --help"))) {
    const std::string page = out_of("attn help " + verb + " --man");
    for (const auto& [name, what] : described(out_of("attn help " + verb))) {
      std::string escaped;
      for (const char c : name) escaped += c == '-' ? "\\-" : std::string(1, c);
      EXPECT_THAT(page, HasSubstr(escaped)) << verb;
    }
    for (const char* title : {".TH ", ".SH \"NAME\"", ".SH \"SYNOPSIS\"", ".SH \"OPTIONS\"", ".SH \"EXAMPLES\""}) {
      EXPECT_THAT(page, HasSubstr(title)) << verb;
    }
  }
  EXPECT_THAT(out_of("attn help --man"), HasSubstr(".BR \"attn\\-train\" (1)"));
}

TEST_F(Completions, ManualPagesAreDrawnWithoutWarnings) {
  if (!has("groff")) return;
  std::vector<std::string> verbs = verbs_of(out_of("attn --help"));
  verbs.emplace_back("");
  for (const std::string& verb : verbs) {
    const Ran drawn = run("attn help " + verb + " --man | groff -man -Tutf8 -P-cbou -ww -b");
    EXPECT_EQ(drawn.status, 0);
    EXPECT_EQ(drawn.err, "") << verb;
    EXPECT_THAT(drawn.out, HasSubstr("NAME")) << verb;
    for (const std::string& example : examples_of(out_of("attn " + verb + " --help"))) {
      // The example is as it is typed: no dash or quote became another letter.
      EXPECT_THAT(drawn.out, HasSubstr(example.substr(0, 40))) << verb;
    }
  }
}

}  // namespace
}  // namespace attn::test
