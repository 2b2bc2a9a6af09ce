// attn embed on the small encoder of the tests, with words of one letter as its tokenizer.
#include "command/command.hpp"
#include "report/figure/text.hpp"

namespace attn::test {
namespace {

class Embed : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    json vocab = {{"[UNK]", 0}};
    for (char letter = 'a'; letter <= 'z'; ++letter) vocab[std::string(1, letter)] = letter - 'a' + 1;
    const json tokenizer = {{"version", "1.0"},
                            {"added_tokens", json::array()},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                            {"post_processor", nullptr},
                            {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                            {"model",
                             {{"type", "WordPiece"},
                              {"unk_token", "[UNK]"},
                              {"continuing_subword_prefix", "##"},
                              {"max_input_chars_per_word", 100},
                              {"vocab", vocab}}}};
    std::ofstream(path("tokenizer.json")) << tokenizer.dump();
  }

  static std::string line() {
    return "attn embed --model " + (kTests / "lm/data/bert").string() + " --tokenizer . --lines texts.txt";
  }
};

TEST_F(Embed, AnyNumberOfTextsFits80Columns) {
  std::string texts;
  for (int i = 0; i < 40; ++i)
    texts += std::string(static_cast<std::size_t>(1 + i % 7), static_cast<char>('a' + i % 26)) + "\n";
  std::string wide;
  for (int i = 0; i < 40; ++i) wide += "注意";
  std::ofstream(path("texts.txt")) << texts << wide << "\n";
  const std::string out = out_of(line());
  std::istringstream lines(out);
  for (std::string each; std::getline(lines, each);) EXPECT_LE(figure::columns_of(each), 80u) << each;
  const json all = json::parse(out_of(line() + " --json"));
  ASSERT_EQ(all["texts"].size(), 41u);
  // Every pair is there: as many numbers with four decimals as there are pairs, behind four of each vector.
  std::size_t points = 0;
  for (std::size_t at = 0; (at = out.find('.', at)) != std::string::npos; ++at) ++points;
  EXPECT_EQ(points, 41u * 41u + 41u * 4u);
}

TEST_F(Embed, AFolderThatIsNoEncoderIsTold) {
  std::filesystem::create_directories(path("empty"));
  std::filesystem::create_directories(path("docs"));
  write("docs/a", "");
  for (const auto& [folder, found] : {std::pair{"empty", "found an empty folder"},
                                      {"docs", "found a folder without it"},
                                      {"nowhere", "found nothing there"},
                                      {"docs/a", "found a file of another kind"}}) {
    refused(std::string("attn embed a --model ") + folder, 3, {"an encoder at ", "a folder with config.json", found});
  }
}

// Which of many is empty is told.
TEST_F(Embed, ATextWithoutTokensIsNamed) {
  write("texts.txt", "a b\n\nc\n");
  refused(line(), 3, {"[--lines]", "at least one token", "none in line 2, ''"});
  const std::string texts = "attn embed --model " + (kTests / "lm/data/bert").string() + " --tokenizer . ";
  refused(texts + "a b ' '", 3, {"[TEXT]", "none in text 3, ' '"});
}

}  // namespace
}  // namespace attn::test
