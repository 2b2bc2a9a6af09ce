// plot and show: figures from modules, steps files and bare weights; what is refused.
#include "attn/modules.hpp"
#include "command/command.hpp"

namespace attn::test {
namespace {

class Pictures : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write_six_words();
    // Bare weights: two layers of three heads.
    Generator rng(5);
    Tensor w = rng.rand({2, 3, 6, 6});
    io::save_npy(path("layers.npy"), w);
    io::save_npy(path("heads.npy"), w.select(0, 1).contiguous());
    io::save_npy(path("one.npy"), w.select(0, 1).select(0, 2).contiguous());
    out_of("attn run multihead --input x.csv --d-out 4 --tokens words.txt --save-steps s.safetensors");
  }
  std::string svg(const std::string& line) const {
    out_of(line + " --output f.svg");
    return read(path("f.svg"));
  }
};

// ---- plot -----------------------------------------------------------------------------------------

TEST_F(Pictures, AModuleAStepsFileAndBareWeightsGiveTheSameFigure) {
  const std::string of_module = svg("attn plot multihead --input x.csv --d-out 4 --tokens words.txt");
  EXPECT_EQ(of_module, svg("attn plot s.safetensors")) << "labels and mask travel in the file";
  EXPECT_THAT(of_module, HasSubstr("head 2"));
  EXPECT_THAT(of_module, HasSubstr("starts → Your: 0.3"));
  const Tensor weights = io::load_tensor(path("s.safetensors"), "weights");
  io::save_npy(path("w.npy"), weights);
  EXPECT_EQ(of_module, svg("attn plot w.npy --tokens words.txt")) << "a future that is all 0 was masked";
  EXPECT_THAT(of_module, HasSubstr("Your → step: masked</title>"));
}

TEST_F(Pictures, EveryFigureOfEveryModule) {
  for (const char* module : {"simple", "average", "self-v1", "self-v2", "head", "causal", "heads", "multihead", "cross",
                             "linear", "delta", "gated-delta"}) {
    for (const char* figure : {"heatmap", "heads", "lines", "space", "arrows", "steps"}) {
      const std::string text = svg(std::string("attn plot ") + module + " --figure " + figure);
      EXPECT_THAT(text, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\"")) << module << figure;
      EXPECT_THAT(text, HasSubstr(">journey")) << module << " " << figure;
    }
  }
}

TEST_F(Pictures, ChoosesLayerHeadStepAndText) {
  const Tensor w = io::load_tensor(path("layers.npy"));
  const auto told = [&](const std::string& text, double value) {
    char number[32];
    std::snprintf(number, sizeof number, ": %.6g<", value);
    return text.find(number) != std::string::npos;
  };
  const std::string all = svg("attn plot layers.npy");
  EXPECT_TRUE(told(all, w.at({0, 0, 0, 0})) && told(all, w.at({1, 2, 5, 5})));
  EXPECT_THAT(all, HasSubstr("layer 2, head 3"));
  const std::string one = svg("attn plot layers.npy --layer 2 --head 3");
  EXPECT_TRUE(told(one, w.at({1, 2, 5, 5})));
  EXPECT_FALSE(told(one, w.at({0, 0, 0, 0})));
  EXPECT_THAT(one, HasSubstr(">layer 2, head 3</text>"));
  const std::string same = svg("attn plot layers.npy --layer 2 --head 3 --title one");
  EXPECT_EQ(same, svg("attn plot heads.npy --head 3 --title one"));
  EXPECT_EQ(same, svg("attn plot one.npy --title one"));
  EXPECT_THAT(svg("attn plot s.safetensors --step masked --head 1"), HasSubstr("Your → step: -inf</title>"));
  EXPECT_THAT(svg("attn plot s.safetensors --step scores --head 1"), HasSubstr("Your → step: masked</title>"));
  EXPECT_EQ(svg("attn plot multihead --input batch.npy --item 2 --tokens words.txt --d-out 4"),
            svg("attn plot s.safetensors"));
}

TEST_F(Pictures, TheTitleSaysWhichLayerAndHead) {
  const auto title_of = [&](const std::string& line) {
    const std::string text = svg("attn plot " + line);
    const std::size_t bold = text.find("font-weight=\"bold\"");
    if (bold == std::string::npos) return std::string();
    const std::size_t at = text.find('>', bold) + 1;
    return text.substr(at, text.find('<', at) - at);
  };
  EXPECT_EQ(title_of("layers.npy"), "");  // each picture has its own name
  EXPECT_EQ(title_of("layers.npy --layer 2"), "layer 2");
  EXPECT_EQ(title_of("layers.npy --figure heatmap"), "layer 1, head 1");
  EXPECT_EQ(title_of("layers.npy --figure lines"), "layer 1");  // its heads are named by their colours
  EXPECT_EQ(title_of("layers.npy --figure lines --layer 2 --head 3"), "layer 2, head 3");
  EXPECT_EQ(title_of("layers.npy --figure steps --layer 2"), "layer 2, head 1");
  EXPECT_EQ(title_of("heads.npy --head 3"), "head 3");
  EXPECT_EQ(title_of("one.npy"), "");
  EXPECT_EQ(title_of("s.safetensors --figure arrows --step queries --head 2"), "head 2");
  EXPECT_EQ(title_of("s.safetensors --figure arrows --step inputs"), "");
  EXPECT_EQ(title_of("layers.npy --layer 2 --title mine"), "mine");
  // A model some of whose layers have no weights: their numbers stay.
  const Tensor w = io::load_tensor(path("heads.npy"));
  io::save_safetensors(path("some.safetensors"), {.tensors = {{"layers.1.weights", w}, {"layers.4.weights", w}}});
  EXPECT_EQ(title_of("some.safetensors --layer 2 --head 1"), "layer 5, head 1");
}

TEST_F(Pictures, ATrainedModelsHeads) {
  write("book.txt", std::string(300, 'a') + "Attention is all you need.");
  out_of("attn train --text book.txt --out m.safetensors --layers 2 --heads 2 --width 8 --context 8 --steps 2");
  EXPECT_THAT(svg("attn plot --model m.safetensors --text 'need it'"), HasSubstr("layer 2, head 2"));
  EXPECT_THAT(svg("attn plot --model m.safetensors --text 'need it' --layer 2 --head 1"), HasSubstr("t → ␣: 0."));
  const json told = json::parse(out_of("attn show --model m.safetensors --text 'né' --layer 2 --head 2 --json"));
  EXPECT_EQ(told["layers"], 2);
  EXPECT_EQ(told["values"][0], json({1, 0, 0}));
  EXPECT_THAT(out_of("attn show --model m.safetensors --text 'né'"), HasSubstr("\\xA9"));
  refused("attn plot --model m.safetensors --text '' --output f.svg", 2, {"1 to 8 tokens"});
  refused("attn plot --model m.safetensors --text 'far too long' --output f.svg", 2, {"1 to 8 tokens", "12"});
  refused("attn plot --model m.safetensors --text a --heads 2 --output f.svg", 2, {"--heads"});
  refused("attn plot causal --model m.safetensors --output f.svg", 2, {"WHAT", "both"});
  refused("attn plot m.safetensors --output f.svg", 3, {"and ", " more", "--model FILE --text TEXT"});
}

TEST_F(Pictures, KeysHaveTheirOwnWords) {
  write("keys.txt", "k1\nk2\nk3\nk4\n");
  write("w.csv", "1,0,0,0\n0,1,0,0\n");
  write("q.txt", "q1\nq2\n");
  const std::string text = svg("attn plot w.csv --tokens q.txt --key-tokens keys.txt");
  EXPECT_THAT(text, HasSubstr("q2 → k4: 0"));
}

TEST_F(Pictures, TextsAreData) {
  write("evil.txt", "</script>\n\"'\n\xff\n<b>\n&amp;\n\n");
  const std::string text =
      svg("attn plot causal --input x.csv --d-out 2 --tokens evil.txt --title '<script>alert(1)</script>'");
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(text, Not(HasSubstr("<b>")));
  EXPECT_THAT(text, HasSubstr("&lt;/script&gt;"));
  EXPECT_THAT(text, HasSubstr("&amp;amp;"));
}

TEST_F(Pictures, PngHasTheSizeAskedFor) {
  const Ran ran = run("attn plot causal --output f.png --dpi 192 && attn plot causal --output half.png --dpi 96");
  if (ran.status != 0 && ran.err.find("librsvg") != std::string::npos) GTEST_SKIP() << ran.err;
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto size = [&](const std::string& name) {
    const std::string png = read(path(name));
    EXPECT_THAT(png, StartsWith("\x89PNG\r\n\x1a\n"));
    const auto number = [&](std::size_t at) {
      unsigned n = 0;
      for (std::size_t i = 0; i < 4; ++i) n = n << 8 | static_cast<unsigned char>(png.at(at + i));
      return n;
    };
    EXPECT_GT(png.size(), 2000u);
    return std::pair(number(16), number(20));
  };
  const auto [width, height] = size("f.png");
  const auto [half_width, half_height] = size("half.png");
  EXPECT_NEAR(width, 2 * half_width, 1);
  EXPECT_NEAR(height, 2 * half_height, 1);
  const std::string text = svg("attn plot causal");
  EXPECT_THAT(text, HasSubstr("width=\"" + std::to_string(half_width).substr(0, 2)));
}

TEST_F(Pictures, APageHoldsTheFigureAndRunsNothing) {
  const std::string flags =
      " causal --input x.csv --d-out 2 --tokens evil.txt --title '</title><script>alert(1)</script>'";
  write("evil.txt", "</script>\n\"'\n\xff\n<b>\n&amp;\n\n");
  const std::string figure = svg("attn plot" + flags);
  out_of("attn plot" + flags + " --output f.html");
  const std::string page = read(path("f.html"));
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("<main>\n" + figure));
  EXPECT_THAT(page, HasSubstr("<title>&lt;/title&gt;&lt;script&gt;"));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<b>")), HasSubstr("default-src 'none'")));
  refused("attn plot causal --output f.html --dpi 96", 2, {"--dpi", ".png"});
}

TEST_F(Pictures, StandardInputAndOutput) {
  EXPECT_EQ(out_of("attn plot - --output - < one.npy"), svg("attn plot one.npy"));
  EXPECT_EQ(out_of("attn show - < one.npy"), out_of("attn show one.npy"));
}

TEST_F(Pictures, LinesOfOneQuery) {
  const std::string all = svg("attn plot causal --figure lines"),
                    one = svg("attn plot causal --figure lines --query 2");
  EXPECT_THAT(all, HasSubstr("step → Your"));
  EXPECT_THAT(one, AllOf(HasSubstr("journey → Your: "), HasSubstr("journey → journey: "), Not(HasSubstr("step → "))));
  refused("attn plot causal --figure lines --query 7 --output f.svg", 2, {"--query", "1 to 6"});
  refused("attn plot causal --query 2 --output f.svg", 2, {"--query", "--figure lines"});
  refused("attn plot causal --figure space --query 2 --output f.svg", 2, {"--query"});
}

TEST_F(Pictures, Refused) {
  constexpr int usage = 2, data = 3;
  write("f.svg", "older");
  refused("attn plot causal", usage, {"--output"});
  refused("attn plot nosuch --output f.svg", usage, {"a module (simple", "or a file", "nosuch"});
  refused("attn plot causal --output f.pdf", usage, {".svg", ".png", ".html", "f.pdf"});
  refused("attn plot causal --output nosuch/f.svg", data, {"nosuch"});
  refused("attn plot causal --figure pie --output f.svg", usage, {"pie"});
  refused("attn plot causal --colours rainbow --output f.svg", usage, {"rainbow"});
  refused("attn plot causal --dpi 0 --output f.svg", usage, {"--dpi"});
  refused("attn plot causal --step nosuch --output f.svg", usage, {"a step among: inputs", "nosuch"});
  refused("attn plot causal --head 2 --output f.svg", usage, {"--head", "1 to 1", "2"});
  refused("attn plot layers.npy --layer 3 --output f.svg", usage, {"--layer", "1 to 2"});
  refused("attn plot causal --item 2 --output f.svg", usage, {"--item", "1 to 1"});
  refused("attn plot causal --step scores --log --input x.csv --layer-order kqv --output f.svg", usage, {"log scale"});
  refused("attn plot one.npy --heads 2 --output f.svg", usage, {"--heads"});
  refused("attn plot one.npy --input x.csv --output f.svg", usage, {"--input"});
  refused("attn plot one.npy --figure steps --step scores --output f.svg", usage, {"--figure steps", "--step"});
  refused("attn plot heads.npy --figure heads --head 1 --output f.svg", usage, {"--figure heads", "--head"});
  refused("attn plot one.npy --figure space --output f.svg", usage, {"a step among: weights", "inputs"});
  write("two.txt", "a\nb\n");
  refused("attn plot one.npy --tokens two.txt --output f.svg", data, {"6 lines, one for each query", "2"});
  refused("attn plot one.npy --key-tokens two.txt --output f.svg", data, {"6 lines, one for each key", "2"});
  io::save_npy(path("vector.npy"), Tensor::ones({6}));
  io::save_npy(path("five.npy"), Tensor::ones({1, 1, 1, 2, 2}));
  io::save_npy(path("none.npy"), Tensor::ones({0, 6, 6}));
  io::save_npy(path("no-keys.npy"), Tensor::ones({1, 6, 0}));
  refused("attn plot no-keys.npy --output f.svg", data, {"(heads, queries, keys) that are not empty"});
  for (const char* file : {"vector.npy", "five.npy", "none.npy"}) {
    refused(std::string("attn plot ") + file + " --output f.svg", data, {"(heads, queries, keys)", "pass a module"});
  }
  io::NamedTensors several;
  several.tensors = {{"a", Tensor::ones({2, 2})}, {"b", Tensor::ones({2, 2})}};
  io::save_npz(path("several.npz"), several);
  refused("attn plot several.npz --output f.svg", data, {"--save-steps", "a, b", "--tensor"});
  refused("attn plot several.npz --tensor c --output f.svg", usage, {"a, b", "c"});
  EXPECT_EQ(run("attn plot several.npz --tensor b --output g.svg").status, 0);
  write("text.npy", "\x93NUMPY nonsense");
  refused("attn plot text.npy --output f.svg", data, {"text.npy"});
}

// ---- show -----------------------------------------------------------------------------------------

TEST_F(Pictures, ShowInCharacters) {
  write("w.csv", "1,0,0\n.5,.5,0\n.2,.3,.5\n");
  write("w.txt", "Your\njourney\nstarts\n");
  EXPECT_EQ(out_of("attn show w.csv --tokens w.txt --ascii"),
            "weights (1, 3, 3)\n"
            "         Your    journey starts\n"
            "Your        1       .       .\n"
            "journey    0.5     0.5      .\n"
            "starts     0.2     0.3     0.5\n"
            "         . masked\n");
  EXPECT_THAT(out_of("attn show multihead --head 2"), HasSubstr("multihead: weights (2, 6, 6), head 2 of 2"));
}

TEST_F(Pictures, ShowNumbersAsPyTorchPrintsThem) {
  EXPECT_THAT(out_of("attn show simple --numbers"),
              HasSubstr("        [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581],  # journey\n"));
}

TEST_F(Pictures, ShowAsJson) {
  const json told = json::parse(out_of("attn show s.safetensors --json"));
  EXPECT_EQ(told["module"], "multihead");
  EXPECT_EQ(told["heads"], 2);
  EXPECT_EQ(told["tokens"][1], "journey");
  EXPECT_EQ(told["keep"][0], json({1, 0, 0, 0, 0, 0}));
  const Tensor weights = io::load_tensor(path("s.safetensors"), "weights");
  EXPECT_NEAR(told["values"][1][5][3].get<double>(), weights.at({1, 5, 3}), 1e-7);
  const json head = json::parse(out_of("attn show s.safetensors --json --head 2"));
  EXPECT_EQ(head["values"], told["values"][1]);
  EXPECT_EQ(json::parse(out_of("attn show causal --step masked --json"))["values"][0][0][1], "-inf");
}

TEST_F(Pictures, ShowColoursWhereTheyAreWelcome) {
  const std::string show = "attn show causal";
  EXPECT_THAT(out_of(show), Not(HasSubstr("\x1b")));
  EXPECT_THAT(on_terminal("NO_COLOR=1 TERM=xterm " + show), Not(HasSubstr("\x1b")));
  EXPECT_THAT(on_terminal("TERM=dumb " + show), Not(HasSubstr("\x1b")));
  EXPECT_THAT(on_terminal("unset COLORTERM; TERM=xterm-256color " + show), HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(on_terminal("COLORTERM=truecolor TERM=xterm " + show), HasSubstr("\x1b[48;2;"));
  EXPECT_THAT(on_terminal("COLORTERM=truecolor TERM=xterm " + show + " --color never"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(out_of(show + " --color 256"), HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(out_of(show + " --color 24bit"), HasSubstr("\x1b[48;2;253;231;36m"));
  EXPECT_THAT(out_of("COLORTERM=truecolor " + show + " --color always"), HasSubstr("\x1b[48;2;"));
}

TEST_F(Pictures, ShowFitsTheTerminal) {
  Generator rng(7);
  io::save_npy(path("large.npy"), rng.rand({500, 500}));
  const auto widest = [](const std::string& text) {
    std::ptrdiff_t most = 0, column = 0;
    for (const char c : text) {
      column = c == '\n' || c == '\r' ? 0 : column + ((static_cast<unsigned char>(c) & 0xc0) != 0x80);
      most = std::max(most, column);
    }
    return most;
  };
  const auto in_range = [&](const std::string& text, std::ptrdiff_t columns) {
    EXPECT_LE(widest(text), columns);
    EXPECT_GT(widest(text), columns / 2);
  };
  in_range(out_of("attn show large.npy"), 80);
  in_range(out_of("attn show large.npy --width 133"), 133);
  in_range(on_terminal("TERM=dumb attn show large.npy", 100), 100);
  EXPECT_THAT(out_of("attn show large.npy"), HasSubstr("500 × 500 drawn as"));
}

TEST_F(Pictures, ShowRefuses) {
  refused("attn show causal --color red", 2, {"red"});
  refused("attn show causal --width 3", 2, {"--width"});
  refused("attn show causal --head 2", 2, {"1 to 1"});
}

}  // namespace
}  // namespace attn::test
