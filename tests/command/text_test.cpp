// --text of the modules: words of one's own in every verb, and what is refused.
#include <cmath>
#include <regex>

#include "command/command.hpp"
#include "command/help.hpp"

namespace attn::test {
namespace {

class Text : public Command {};

TEST_F(Text, IsTheInputOfEveryModule) {
  const std::vector<std::string> words{"My", "dog", "likes", "cats", ",", "too", "."};
  for (const char* module : {"", "simple", "average", "self-v1", "self-v2", "head", "causal", "heads", "multihead"}) {
    const std::string of = std::string(module) + " --text 'My dog likes cats, too.' ";
    const json told = json::parse(out_of("attn show " + of + "--json"));
    EXPECT_EQ(told["tokens"], words) << module;
    EXPECT_EQ(told["shape"][1], 7) << module;
    EXPECT_EQ(json::parse(out_of("attn run " + of + "--json"))["shapes"]["input"], (json{7, 24})) << module;
    EXPECT_THAT(out_of("attn explain " + of), HasSubstr("query 2 \"dog\"")) << module;
    out_of("attn plot " + of + "--output f.svg && attn report " + of + "--output p.html");
    EXPECT_THAT(read(path("f.svg")), HasSubstr("likes")) << module;
    EXPECT_THAT(read(path("p.html")), HasSubstr("My dog likes cats, too.")) << module;
  }
  const json cross = json::parse(out_of("attn show cross --text 'a b' --context-text 'c d, e' --json"));
  EXPECT_EQ(cross["key_tokens"], (json{"c", "d", ",", "e"}));
  write("t.txt", "My dog\nlikes cats");
  EXPECT_EQ(out_of("attn run --text-file t.txt"), out_of("attn run simple --text 'My dog likes cats'"));
  EXPECT_EQ(out_of("attn run --text-file - <t.txt"), out_of("attn run simple --text 'My dog likes cats'"));
}

// Some editors write a byte order mark first, which is no letter of the first word.
TEST_F(Text, IsUtf8WithOrWithoutAMark) {
  const std::string mark = "\xef\xbb\xbf", words = "attn run --text-file ";
  write("plain.txt", "the cat\n"), write("marked.txt", mark + "the cat\n"),
      write("six.txt", mark + "a\nb\nc\nd\ne\nf\n");
  EXPECT_EQ(out_of(words + "marked.txt"), out_of(words + "plain.txt"));
  EXPECT_EQ(json::parse(out_of("attn show --tokens six.txt --json"))["tokens"][0], "a");
  write("u16.txt", std::string("\xff\xfe"
                               "a\0 \0",
                               6));
  for (const char* verb : {"run", "explain", "show"}) {
    refused("attn " + std::string(verb) + " simple --text-file u16.txt", 2, {"--text-file", "UTF-16", "iconv"});
  }
}

TEST_F(Text, HasAsManyNumbersAsTheWeightsTake) {
  out_of("attn run multihead --input randn:3,6 --d-out 4 --save-weights w.safetensors");
  const json told = json::parse(out_of("attn run multihead --d-out 4 --weights w.safetensors --text 'one two' --json"));
  EXPECT_EQ(told["shapes"]["input"], (json{2, 6}));
  out_of("attn run self-v1 --input randn:3,5 --d-out 2 --save-weights v1.safetensors --output z.npy");
  EXPECT_EQ(json::parse(out_of("attn run self-v1 --d-out 2 --weights v1.safetensors --text one --json"))["shapes"],
            (json{{"input", {1, 5}}, {"output", {1, 2}}}));
}

TEST_F(Text, IsRefusedByNameWhereItCannotBeRead) {
  write("x.csv", "1,0,0\n0,1,0\n");
  for (const char* verb : {"show", "explain", "run", "plot --output f.svg", "report --output f.html"}) {
    const std::string attn = "attn " + std::string(verb) + " ";
    refused(attn + "simple --text ''", 2, {"--text", "at least one word"});
    refused(attn + "simple --text ' \n'", 2, {"--text", "at least one word"});
    refused(attn + "simple --text-file x.csv --text a", 2, {"--text"});
    refused(attn + "simple --text a --text b", 2, {"--text", "twice"});
    refused(attn + "simple --text a --input x.csv", 2, {"--text", "--input"});
    refused(attn + "simple --text-file x.csv --input x.csv", 2, {"--text-file", "--input"});
    refused(attn + "simple --text a --tokens x.csv", 2, {"--tokens", "--text"});
    refused(attn + "simple --text a --tensor b", 2, {"--tensor"});
    refused(attn + "simple --text a --context-text b", 2, {"--context-text", "cross"});
    refused(attn + "cross --text a --context-text ''", 2, {"--context-text", "at least one word"});
    refused(attn + "cross --text a --context-text b --context x.csv", 2, {"--context-text"});
    refused(attn + "cross --text a", 2, {"--context FILE or --context-text TEXT"});
    refused(attn + "cross --text a --context x.csv", 3, {"24"});
    refused(attn + "causal --text 'a b c' --context-length 2", 3, {"context_length = 2", "3"});
    EXPECT_TRUE(files().size() == 1) << verb;
  }
  refused("attn show x.csv --text a", 2, {"--text", "file of steps"});
  refused("attn show simple --text a --tokenizer .", 2, {"--tokenizer", "--model"});
  refused("attn explain --text a --query 2", 2, {"--query", "1 to 1"});
}

// Each sum's terms and its rest are what they add up to, and no term is nothing.
TEST_F(Text, IsExplainedByTheTermsThatMatter) {
  write("letters.csv", "0,3,0,0,1,0,0.25,2,0,1\n1,2,0,0,1,0,0.5,0,0,2\n0,0,0,4,0,0,0,0,0,0\n");
  const std::regex product("(\\(?-?[0-9.]+\\)?)·(\\(?-?[0-9.]+\\)?)"), more("(\\(?-?[0-9.]+\\)?) \\([0-9]+ more\\)");
  const auto number = [](std::string text) {
    text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == '(' || c == ')'; }), text.end());
    return std::stod(text);
  };
  int sums = 0;
  for (const char* of :
       {"simple --input letters.csv", "--text 'The cat sat on the mat because it was a tired old cat'"}) {
    const std::string text = out_of("attn explain " + std::string(of));
    EXPECT_THAT(text, testing::Not(HasSubstr("0.0000·0"))) << text;
    for (const std::string& line : lines_of(text)) {
      if (!std::regex_search(line, product)) continue;
      double sum = 0, last = 1e9;
      for (std::sregex_iterator at(line.begin(), line.end(), product), end; at != end; ++at) {
        const double term = number((*at)[1]) * number((*at)[2]);
        EXPECT_LE(std::abs(term), last) << line;
        EXPECT_NE(term, 0) << line;
        last = std::abs(term);
        sum += term;
      }
      if (std::smatch rest; std::regex_search(line, rest, more)) sum += number(rest[1]);
      EXPECT_NEAR(sum, number(line.substr(line.rfind(" = ") + 3)), 2e-3) << line;
      ++sums;
    }
  }
  EXPECT_GE(sums, 10);
  EXPECT_THAT(out_of("attn explain simple --input letters.csv"),
              HasSubstr("x_2 · x_1 = 2.0000·3.0000 + 2.0000·1.0000 + 1.1250 (2 more) = 9.1250\n"));
  EXPECT_THAT(out_of("attn explain simple --input letters.csv"), HasSubstr("x_2 · x_3 = 0.0000\n"));
  EXPECT_THAT(out_of("attn explain --text 'a b c d e f g h i j k l'"), HasSubstr("4 more, sum 0."));
}

TEST_F(Text, IsWalkedThroughByDemo) {
  const std::string text = out_of("attn demo 'My dog likes cats.'");
  for (const char* part : {"\"My dog likes cats.\"", "5 words", "scores of \"dog\"", "x_2 · W_query", "# cats"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(out_of("attn demo --text 'My dog likes cats.'"), text);
  refused("attn demo hi --text ho", 2, {"--text"});
  EXPECT_THAT(out_of("attn demo hi"), HasSubstr("One word"));
  EXPECT_THAT(out_of("attn demo \"$(printf 'a\\033[2Jb c')\""), testing::Not(HasSubstr("\033[2J")));
  refused("attn demo ''", 2, {"1 to 16 words; found 0"});
  refused("attn demo 'a b c d e f g h i j k l m n o p q'", 2, {"1 to 16 words; found 17"});
  refused("attn demo a b", 2, {"no further argument"});
  refused("attn demo \"$(printf '\\377\\376 bad')\"", 2, {"a text in UTF-8; found one in UTF-16"});
  for (const char* verb : {"demo", "explain delta --text", "explain gated-delta --text", "explain linear --text"}) {
    const std::string rest = verb == std::string("demo") ? std::string(800, 'a') : "sat because it was tired.";
    expect_layout(out_of("attn " + std::string(verb) + " 'The cat " + rest + "'"));
  }
  // A long word is cut so far that it stands behind its numbers, of which negative ones are in parentheses.
  for (const char* module : {"head", "latent"}) {
    expect_layout(out_of(std::string("attn explain ") + module + " --text '" + std::string(200, 'a') + " is long'"));
  }
}

}  // namespace
}  // namespace attn::test
