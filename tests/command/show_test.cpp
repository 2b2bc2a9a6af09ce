// Pictures and tables at many widths: no line is wider than the terminal, and no number touches the next.
#include <regex>

#include "attn/random.hpp"
#include "command/command.hpp"
#include "command/help.hpp"

namespace attn::test {
namespace {

class Show : public Command {};

class ShowAt : public Show, public testing::WithParamInterface<unsigned short> {
 protected:
  const std::string licences_ = ATTN_SOURCE "/examples/data/licences.safetensors";

  // Every line fits, and every word of a row behind its label is one number, a mark, or shades.
  void stands_alone(const std::string& line) const {
    const std::regex number("-?[0-9]*\\.?[0-9]+(e-?[0-9]+)?"), no_digits("[^0-9]+");
    for (const std::string& text : lines_of(out_of(line + " --width " + std::to_string(GetParam())))) {
      const bool title = text.find(" of ") != std::string::npos || text.find('(') != std::string::npos;
      EXPECT_LE(columns(text), GetParam()) << line << "\n" << text;
      if (title || text.starts_with(' ') || text.find("cell") != std::string::npos)
        continue;  // labels, legend, pooling
      std::istringstream words(text);
      std::string word;
      words >> word;  // the label
      while (words >> word) {
        EXPECT_TRUE(std::regex_match(word, number) || std::regex_match(word, no_digits)) << line << "\n" << text;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Widths, ShowAt, testing::Values<unsigned short>(20, 40, 60, 80, 100, 120, 200),
                         testing::PrintToStringParamName());

TEST_P(ShowAt, NumbersStandAlone) {
  for (const char* step : {"queries", "keys", "values", "scores", "weights", "context"}) {
    stands_alone(std::string("attn show multihead --d-out 8 --step ") + step);
  }
  stands_alone("attn show --model '" + licences_ + "' --text 'You may copy it.'");
  stands_alone("attn show --model '" + licences_ + "' --text 'You may copy it.' --head 2");
  stands_alone("attn show --model '" + licences_ + "' --text 'The quick brown fox' --layer 2");
  stands_alone("attn show --model '" + licences_ + "' --text 'The quick brown fox' --layer 2 --log --ascii");
}

TEST_P(ShowAt, TitleLegendAndPoolingFit) {
  Generator rng(7);
  io::save_npy(path("large.npy"), rng.rand({500, 500}));
  for (const std::string what : {"large.npy", "multihead --head 2 --colour-scale row", "causal --step masked"}) {
    for (const std::string& line : lines_of(out_of("attn show " + what + " --width " + std::to_string(GetParam())))) {
      EXPECT_LE(columns(line), GetParam()) << what << "\n" << line;
    }
  }
}

TEST_F(Show, ALegendOfShadesStandsBelowShadesOnly) {
  EXPECT_THAT(out_of("attn show causal"), HasSubstr("\n         · masked\n"));
  EXPECT_THAT(out_of("attn show causal"), Not(HasSubstr("░")));
  EXPECT_THAT(out_of("attn show simple"), testing::EndsWith("0.099    0.19\n"));
  EXPECT_THAT(out_of("attn show causal --width 30"), HasSubstr("░"));
  EXPECT_THAT(out_of("attn show causal --color 256"), HasSubstr(" 1   · masked\n"));
}

TEST_F(Show, TokensStandBesideRowsThatFit) {
  for (const char* verb : {"explain", "run"}) {
    const std::string text = out_of("attn " + std::string(verb) + " multihead --d-out 8 --rope");
    EXPECT_THAT(text, HasSubstr("],  # journey\n"));
    expect_layout(text);
  }
  EXPECT_THAT(out_of("attn explain multihead --d-out 8 --rope"), HasSubstr("0.1008]\n  becomes [0.5696"));
}

// Characters of East Asia and emoji take two columns each.
TEST_F(Show, WideWordsFitAsWell) {
  const auto wide = [](const std::string& line) {
    return std::ranges::count_if(line, [](char c) { return c >= '\xe3' && c <= '\xf0'; });
  };
  const std::string words = " --text '彼は 東京大学東京大学東京大学東京大学 猫が 鼠を 😀😀😀😀😀😀😀😀😀😀😀'";
  for (const char* line : {"explain simple", "explain causal", "run multihead", "explain gated-delta", "show causal"}) {
    const std::string text = out_of("attn " + std::string(line) + words);
    EXPECT_THAT(text, HasSubstr("東京")) << line;
    for (const std::string& one : lines_of(text)) EXPECT_LE(columns(one) + wide(one), 80) << line << "\n" << one;
    for (const std::string& one : lines_of(on_terminal("NO_COLOR=1 attn " + std::string(line) + words, 50))) {
      EXPECT_LE(columns(one.substr(0, one.find('\r'))) + wide(one), 50) << line << "\n" << one;
    }
  }
}

TEST_F(Show, MetadataIsCutBetweenCharacters) {
  for (int before = 0; before < 3; ++before) {
    std::string value(static_cast<std::size_t>(before), 'a');
    for (int i = 0; i < 60; ++i) value += "é東";
    io::save_safetensors(path("m.safetensors"), {.tensors = {{"x", Tensor::zeros({1})}}, .metadata = {{"k", value}}});
    const std::string text = out_of("attn info m.safetensors");
    const std::size_t begin = text.find("\nk: ") + 4, end = text.find(" … (", begin);
    ASSERT_NE(end, std::string::npos) << text;
    EXPECT_EQ(text.substr(begin, end - begin), value.substr(0, end - begin));
    EXPECT_NE(value[end - begin] & 0xc0, 0x80) << "within a character";
  }
}

// A section that is left out, or written twice, would break their numbers.
TEST_F(Show, SectionsOfEveryModuleFollowEachOther) {
  for (const char* module : {"simple", "average", "self-v1", "self-v2", "head", "causal", "heads", "multihead", "cross",
                             "linear", "delta", "gated-delta", "latent"}) {
    for (const char* query : {"1", "2", "6"}) {
      const std::string line = "attn explain " + std::string(module) + " --query " + query;
      int sections = 0;
      for (const std::string& each : lines_of(out_of(line))) {
        if (!std::regex_search(each, std::regex(R"(^\d+\. )"))) continue;
        EXPECT_TRUE(each.starts_with(std::to_string(++sections) + ". ")) << line << ": " << each;
      }
      EXPECT_GT(sections, 3) << line;
    }
  }
}

TEST_F(Show, TablesFitTheTerminalAndNamesAreWhole) {
  const std::string whole = "context_vecs with the mask that the notebook";
  EXPECT_THAT(out_of("attn check"), HasSubstr(whole));
  const std::string model = std::string("cd '") + ATTN_SOURCE + "' && attn info tests/lm/data/qwen3";
  const std::string name = "model.layers.0.post_attention_layernorm.weight";
  EXPECT_THAT(out_of(model), HasSubstr(name + "  F32"));
  EXPECT_THAT(on_terminal(model, 80), HasSubstr(name + "\r\n  F32"));
  for (const unsigned short width : std::initializer_list<unsigned short>{60, 80, 200}) {
    std::string told = on_terminal("attn check", width);
    for (const std::string& line : lines_of(told)) EXPECT_LE(columns(line), width + 1) << line;  // with its \r
    EXPECT_EQ(told.find(whole) != std::string::npos, width == 200);
    if (width < 80) continue;  // a name alone is as wide
    for (const std::string& line : lines_of(on_terminal(model, width))) EXPECT_LE(columns(line), width + 1) << line;
  }
}

TEST_F(Show, AFileUnderAnothersNameIsToldApart) {
  io::save_npy(path("x.npy"), Tensor::ones({2, 3}));
  EXPECT_THAT(out_of("mv x.npy x.safetensors && attn info x.safetensors"),
              HasSubstr("x.safetensors: npy (although its name ends in .safetensors), 1 tensor\n"));
}

TEST_F(Show, HiddenKeysAreMarkedInEveryVerb) {
  for (const char* line : {"attn demo", "attn explain multihead", "attn explain causal", "attn explain heads"}) {
    const std::string text = on_terminal("TERM=xterm " + std::string(line));
    EXPECT_THAT(text, HasSubstr("· masked")) << line;
  }
  EXPECT_THAT(on_terminal("TERM=xterm attn explain multihead --no-mask"), Not(HasSubstr("masked")));
}

}  // namespace
}  // namespace attn::test
