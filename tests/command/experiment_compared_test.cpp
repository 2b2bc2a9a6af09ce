// attn experiment: two texts, two models, and the models that a run has kept.
#include <iomanip>
#include <regex>
#include <sstream>

#include "command/experiment.hpp"

namespace attn::test {
namespace {

using testing::AllOf;

// Expects cells of which 0 is white, what is below violet and what is above orange, and the largest at an end.
void expect_differences(const std::string& svg) {
  const std::regex cell("fill=\"#(..)(..)(..)\"><title>[^<]*: (-?[0-9.e-]+)<");
  double largest = 0;
  int its_red = 0, count = 0;
  for (std::sregex_iterator at(svg.begin(), svg.end(), cell), end; at != end; ++at, ++count) {
    const int red = std::stoi((*at)[1], nullptr, 16), blue = std::stoi((*at)[3], nullptr, 16);
    const double value = std::stod((*at)[4]);
    EXPECT_TRUE(value > 0 ? red >= blue : value < 0 ? red <= blue : red == 0xf7 && blue == 0xf7) << at->str();
    if (std::abs(value) > std::abs(largest)) largest = value, its_red = red;
  }
  EXPECT_GT(count, 4);
  EXPECT_EQ(its_red, largest > 0 ? 0x7f : 0x2d) << largest;
}

TEST_F(Experiment, TellsTheLossesOfTwoTexts) {
  const auto of = [&](const std::string& letters, const std::string& flags) {
    return json::parse(out_of("attn experiment --model llama --json --text " + letters + flags));
  };
  for (const char* changes : {"", " --without 2.1", " --hide 2"}) {
    const json both = of("ABCABC", std::string(" --other-text AXC") + changes), there = of("AXC", changes);
    const json here = of("ABCABC", changes);
    const char* const which = *changes ? "losses_changed" : "losses";
    EXPECT_EQ(both["losses"], here[which]) << changes;
    EXPECT_EQ(both["losses_other"], there[which]) << changes;
    EXPECT_EQ(both["loss_other"], there[*changes ? "loss_changed" : "loss"]) << changes;
    EXPECT_EQ(both["tokens_other"], there["tokens"]);
    EXPECT_EQ(both["ids_other"], there["ids"]);
  }
  const std::string shown = out_of("attn experiment --model llama --text AXC --other-text ABCABC");
  EXPECT_THAT(shown, testing::ContainsRegex("\n3  'C' +[0-9.]+  'C' +[0-9.]+\n4 +'A' +[0-9.]+\n"));
  EXPECT_THAT(shown, testing::ContainsRegex("masked\n"));
  EXPECT_THAT(shown, testing::Not(HasSubstr("NaN")));
  refused("attn experiment --model llama --text AB --other-text A", 2, {"[--other-text]", "at least two tokens"});
  refused("attn experiment --model llama --text A --other-text AB", 2, {"[--text]", "at least two tokens"});
}

// Texts of one length are set against each other token by token.
TEST_F(Experiment, DrawsWhatTheOtherTextAdds) {
  const std::string two = "attn experiment --model llama --text ABCABC --other-text ABDABD";
  const json both = json::parse(out_of(two + " --json"));
  const std::string shown = out_of(two);
  const double added = both["losses_other"][1].get<double>() - both["losses"][1].get<double>();
  std::ostringstream difference;
  difference << std::showpos << std::fixed << std::setprecision(4) << added;
  EXPECT_THAT(shown, HasSubstr("difference"));
  EXPECT_THAT(shown, HasSubstr(difference.str() + "\n4"));
  out_of(two + " --output drawn.svg");
  EXPECT_THAT(read(path("drawn.svg")), AllOf(HasSubstr("what the other text adds"), HasSubstr("difference")));
  expect_differences(read(path("drawn.svg")));
  out_of(two + " --scores --output drawn.svg");
  expect_differences(read(path("drawn.svg")));
}

TEST_F(Experiment, ComparesHeadsInTwoTexts) {
  const std::string one = "attn experiment --model llama --json --text ABCABC ", other = "--other-text AXC ";
  const std::string there = "attn experiment --model llama --json --text AXC ";
  const json scores = json::parse(out_of(one + other + "--scores")), its = json::parse(out_of(there + "--scores"));
  for (const char* name : {"previous", "duplicate", "induction"}) {
    EXPECT_EQ(scores[name + std::string("_other")], its[name]) << name;
  }
  const json shares = json::parse(out_of(one + other + "--attribution --tokens A B"));
  const json alone = json::parse(out_of(there + "--attribution --tokens A B"));
  EXPECT_EQ(shares["heads_other"], alone["heads"]);
  EXPECT_EQ(shares["logit_other"], alone["logit"]);
  EXPECT_EQ(shares["heads"], json::parse(out_of(one + "--attribution --tokens A B"))["heads"]);
  refused("attn experiment --model llama --text AB --other-text A --scores", 2, {"[--other-text]", "2 to "});
}

// Hidden from every head of every layer in turn, a token is hidden from all.
TEST_F(Experiment, HidesATokenFromAHeadOrALayer) {
  std::string heads = "--hide", layers = "--hide";
  for (const char* layer : {"1", "2"}) {
    layers += std::string(" ") + layer + "=2";
    for (const char* head : {".1", ".2", ".3", ".4"}) heads += std::string(" ") + layer + head + "=2";
  }
  const json whole = found("--hide 2"), by_layer = found(layers), by_head = found(heads), one = found("--hide 2.3=2");
  EXPECT_EQ(by_layer["losses_changed"], whole["losses_changed"]);
  EXPECT_EQ(by_head["losses_changed"], whole["losses_changed"]);
  EXPECT_NE(one["losses_changed"], whole["losses_changed"]);
  const json changes = found("--hide 2.3=2 --changes")["changes"];
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (std::size_t head = 0; head < 4; ++head) {
      EXPECT_EQ(changes[layer][head] > 1e-5, layer == 1 && head == 2) << changes;  // others round otherwise
    }
  }
}

TEST_F(Experiment, SaysThatItComparesSomethingWithItself) {
  std::filesystem::create_symlink("llama", path("linked"));
  for (const char* same : {"llama", "./llama", "linked"}) {
    EXPECT_EQ(run(line(std::string("--other-model ") + same)).err,
              "attn: --other-model is the model itself: nothing differs\n");
  }
  std::filesystem::copy(path("llama"), path("copied"));
  EXPECT_EQ(run(line("--other-model copied")).err, "");
  EXPECT_EQ(run(line("--next --other-text " + text("ids"))).err,
            "attn: --other-text is the text itself: nothing differs\n");
  EXPECT_EQ(run(line("--next --other-text AB")).err, "");
}

// All heads of a deep model take long, and a line that is no part of the output says how a first look does not.
TEST_F(Experiment, ComparesTwoModels) {
  std::filesystem::copy(path("llama"), path("noisy"));
  io::NamedTensors all = io::load(path("noisy/model.safetensors"));
  Generator rng{7};
  for (auto& [name, tensor] : all.tensors) {
    const Tensor noise = rng.randn(tensor.shape());
    for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] += 0.05F * noise.data<float>()[i];
  }
  io::save_safetensors(path("noisy/model.safetensors"), all);
  const auto of = [&](const char* model, const std::string& flags) {
    return json::parse(out_of("attn experiment --json --text " + text("ids") + " --model " + model + " " + flags));
  };
  EXPECT_TRUE(of("llama", "")["ids"][0].is_number_integer());
  for (const std::string edit : {"", "--without 1.2"}) {
    const json both = of("llama", "--other-model noisy " + edit);
    EXPECT_EQ(both["losses_changed"], of("noisy", edit)[edit.empty() ? "losses" : "losses_changed"]) << edit;
    EXPECT_EQ(both["losses"], of("llama", edit)[edit.empty() ? "losses" : "losses_changed"]) << edit;
    EXPECT_EQ(both["changes"], of("llama", "--changes --other-model noisy " + edit)["changes"]) << edit;
    EXPECT_GT(both["changes"][1][3].get<double>(), 0.01);
  }
  const json next = of("llama", "--other-model noisy")["next"], alone = of("noisy", "--next --count 1")["next"];
  EXPECT_TRUE(std::ranges::any_of(
      next, [&](const json& n) { return n["id"] == alone[0]["id"] && n["chance_changed"] == alone[0]["chance"]; }));
  const json scores = of("llama", "--scores --other-model noisy");
  EXPECT_EQ(scores["induction_other"], of("noisy", "--scores")["induction"]);
  EXPECT_EQ(scores["induction"], of("llama", "--scores")["induction"]);
  for (const json& row : of("llama", "--other-model llama")["changes"]) EXPECT_EQ(row, json({0.0, 0.0, 0.0, 0.0}));
  EXPECT_THAT(drawn("--other-model noisy"), HasSubstr("difference"));
  for (const char* what : {"", " --scores"}) expect_differences(drawn(std::string("--other-model noisy") + what));
}

TEST_F(Experiment, FollowsHeadsOverTheCheckpointsOfARun) {
  std::ofstream(path("t.txt")) << "the cat sat on the mat, " << std::string(400, 'a');
  const std::string train =
      "attn train --text t.txt --layers 1 --heads 2 --width 8 --context 16 --batch 2 --out m.safetensors ";
  out_of(train + "--steps 12 --keep-every 5 --save-every 3");
  const std::string steps = "attn experiment --model m.safetensors --text 'the cat' --checkpoints";
  const json all = json::parse(out_of(steps + " --json"))["checkpoints"];
  ASSERT_EQ(all.size(), 2u);
  for (const json& at : all) {
    const std::string step = std::to_string(at["step"].get<int>());
    const std::string alone = "attn experiment --json --text 'the cat' --model m.step-" + step + ".safetensors";
    EXPECT_EQ(at["loss"], json::parse(out_of(alone))["loss"]);
    EXPECT_EQ(at["previous"], json::parse(out_of(alone + " --scores"))["previous"]);
  }
  EXPECT_EQ(all[1]["step"], 10);
  refused("attn experiment --model m.safetensors --text 123456789 --checkpoints", 2,
          {"[--text] expected 2 to 8 tokens, which are read twice for scores; found 9"});
  EXPECT_THAT(out_of(steps + " --output steps.svg"), AllOf(HasSubstr("induction"), HasSubstr("  10  ")));
  EXPECT_THAT(read(path("steps.svg")), HasSubstr("loss / first loss"));
  // Another run of this name: its models alone.
  EXPECT_THAT(run(train + "--steps 4").err, HasSubstr("--force"));
  out_of(train + "--steps 4 --keep-every 4 --force");
  EXPECT_FALSE(std::filesystem::exists(path("m.step-5.safetensors")));
  EXPECT_EQ(json::parse(out_of(steps + " --json"))["checkpoints"].size(), 1u);
}

TEST_F(Experiment, ARunInAFolderKeepsItsModelsThere) {
  std::ofstream out(path("t.txt"));
  for (int i = 0; i < 40; ++i) out << text("ids");
  out.close();
  const std::string train = "attn train --from llama --text t.txt --out tuned --context 8 --batch 2 --warmup 1 ";
  out_of(train + "--steps 4 --keep-every 2 --save-every 100");
  const std::string steps = "attn experiment --model tuned --text " + text("ids") + " --checkpoints --json";
  const json all = json::parse(out_of(steps))["checkpoints"];
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["step"], 2);
  const json last = json::parse(out_of("attn experiment --json --model tuned --text " + text("ids")));
  EXPECT_EQ(all[1]["loss"], last["loss"]);  // the model of the last step is kept, too
  EXPECT_NE(all[0]["loss"], last["loss"]);
  out_of(train + "--steps 3 --keep-every 3 --force");
  EXPECT_EQ(json::parse(out_of(steps))["checkpoints"].size(), 1u);
}

}  // namespace
}  // namespace attn::test
