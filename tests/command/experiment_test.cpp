// attn experiment: the numbers of tests/experiment/make_golden.py, what is printed, and what is refused.
#include "command/experiment.hpp"

#include <functional>
#include <regex>

#include "command/help.hpp"

namespace attn::test {
namespace {

using testing::AllOf;

TEST_F(Experiment, APageHoldsTheFigureAndItsNumbers) {
  const auto below = [&](const std::string& flags) {
    const std::string page = read(path("page.html"));
    EXPECT_THAT(page, HasSubstr("<main>\n" + drawn(flags))) << flags;
    const std::size_t from = page.find('>', page.find("<pre")) + 1, to = page.find("</pre>");
    if (to == std::string::npos) return std::string();
    std::string lines = page.substr(from, to - from);
    for (std::size_t at = 0; (at = lines.find("&#39;", at)) != std::string::npos;) lines.replace(at, 5, "'");
    return lines;
  };
  for (const char* what : {"--attribution", "--scores", "--effects", "--lens"}) {
    const std::string printed = out_of(line(std::string(what) + " --output page.html")), lines = below(what);
    EXPECT_TRUE(printed.ends_with(lines)) << what << "\n" << lines;
    EXPECT_GT(lines.size(), 20u) << what;
  }
  out_of(line("--rollout --output page.html"));
  EXPECT_THAT(below("--rollout"), testing::ContainsRegex("\n[^ ]+ +0.44  0.56 +0 +0"));
  refused(line("--json --output -"), 2, {"beside --json"});
}

TEST_F(Experiment, TellsTheNumbersOfHooksInTransformers) {
  for (const char* by : {"zero", "mean", "uniform"}) {
    const json effects = found(std::string("--effects --by ") + by);
    expect_golden(effects["after"], by);
    EXPECT_NEAR(effects["before"].get<double>(), golden("before").item(), 1e-5);
    const json losses = found(std::string("--without 2.3 --by ") + by);
    EXPECT_NEAR(losses["loss"].get<double>(), golden("before").item(), 1e-5);
    EXPECT_NEAR(losses["loss_changed"].get<double>(), golden(by).at({1, 2}), 1e-5);
  }
  EXPECT_THAT(out_of(line("--effects")), HasSubstr(" with all heads\n"));
  EXPECT_THAT(out_of(line("--effects --skip 1:mlp")), HasSubstr(" as it is changed\n"));
  const json some = found("--effects --exact 3");
  expect_golden(some["estimates"], "estimated_zero");
  EXPECT_GT(some["estimate_error"].get<double>(), 0);
  std::ptrdiff_t known = 0;
  for (const json& layer : some["after"]) known += std::ranges::count_if(layer, &json::is_number);
  EXPECT_EQ(known, 3);
  // The mean over the text itself, given as another.
  expect_golden(found("--effects --by mean --mean-of " + text("ids"))["after"], "mean");
  std::ofstream(path("ids.txt")) << text("ids");
  const json means = found("--without 2.3 --by mean --mean-of-file ids.txt ids.txt");
  EXPECT_NEAR(means["loss_changed"].get<double>(), golden("mean").at({1, 2}), 1e-5);
  expect_golden(found("--lens")["losses"], "lens");
  const std::string pair = std::string("--tokens ") + kTokens[7] + ' ' + kTokens[11];
  const json patched = found("--patch-from " + text("other") + " " + pair);
  expect_golden(patched["stream"], "stream");
  expect_golden(patched["heads"], "heads");
  const json beside = found("--without 2.1 --patch-from " + text("other") + " " + pair);
  EXPECT_NE(beside["clean"], patched["clean"]);
  EXPECT_EQ(beside["heads"][1][0], 0) << "a head that is off in both texts";
  // The same, each head of the other text giving what it gives in this one.
  json shares = json::parse(out_of("attn experiment --json --model llama --text " + text("other") + " --effects " +
                                   pair + " --by text --from " + text("ids")))["after"];
  const auto clean = patched["clean"].get<double>(), corrupt = patched["corrupt"].get<double>();
  for (json& layer : shares) {
    for (json& head : layer) head = (head.get<double>() - corrupt) / (clean - corrupt);
  }
  expect_golden(shares, "heads");
  expect_golden(found("--attribution " + pair)["heads"], "parts");
  // --next tells of the two tokens alone. The parts add up to their logits' difference, as the model is and as changed.
  const json two = found("--next --without 2.3 " + pair);
  EXPECT_EQ(two["next"].size(), 2u);
  EXPECT_EQ(two["next"][1]["id"], 11);
  const auto logit = [&](const std::string& flags) { return found(flags + pair)["logit"].get<double>(); };
  EXPECT_NEAR(two["logit_difference"].get<double>(), logit("--attribution "), 1e-5);
  EXPECT_NEAR(two["logit_difference_changed"].get<double>(), logit("--attribution --without 2.3 "), 1e-5);
  EXPECT_GT(std::fabs(two["logit_difference"].get<double>() - two["logit_difference_changed"].get<double>()), 1e-3);
  EXPECT_FALSE(found("--next --tokens A").contains("logit_difference"));
  EXPECT_FALSE(found("--next " + pair).contains("logit_difference_changed"));
  expect_golden(found("--rollout")["rollout"][1], "rollout");
}

// One head of a step, and arrays in a step's place: zeros are the head switched off, and its weights its own.
TEST_F(Experiment, StepsBecomeArrays) {
  const auto loss = [&](const std::string& flags) { return found(flags)["loss_changed"].get<double>(); };
  const std::string step = " --step model.layers.1.self_attn.";
  io::save_npy(path("zero.npy"), Tensor::zeros({1}, DType::f64));
  EXPECT_EQ(loss(step + "context:3=zero.npy"), loss("--without 2.3"));
  EXPECT_EQ(loss(step + "context:3=0"), loss("--without 2.3"));
  EXPECT_EQ(loss(step + "context=zero.npy"), loss("--without 2"));
  EXPECT_NE(loss(step + "context:3=0.5"), loss("--without 2.3"));
  Tensor previous = Tensor::zeros({9, 9});
  for (std::int64_t i = 0; i < 9; ++i) previous.set({i, std::max<std::int64_t>(i - 1, 0)}, 1);
  io::save_npy(path("previous.npy"), previous);
  EXPECT_EQ(loss(step + "weights:3=previous.npy"), loss("--weights 2.3=previous"));
  refused(line(step + "weights:3=nowhere.npy"), 3, {"nowhere.npy"});
  for (const char* head : {"0", "5", "x", ""}) {
    refused(line(step + "weights:" + head + "=0"), 2, {"a head from 1 to 4 behind the name's colon"});
  }
  io::save_npy(path("nan.npy"), Tensor::full({1}, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_THAT(run(line(step + "context:3=nan.npy")).err, HasSubstr("holds 1 NaN: passed through"));
  io::save_npy(path("previous.npy"), Tensor::zeros({9, 8}));
  refused(line(step + "weights:3=previous.npy"), 3, {"attn.weights", "(1, 9, 9)", "(9, 8)"});
}

// A vocabulary has more tokens than the tokenizer where it was padded to a round size.
TEST_F(Experiment, TokensWithoutATextHaveTheirNumbers) {
  std::filesystem::create_directory(path("few"));
  const json vocabulary{{"A", 0}, {"B", 1}, {"C", 2}};
  std::ofstream(path("few/tokenizer.json"))
      << json{{"model", {{"vocab", vocabulary}, {"merges", json::array()}}}, {"decoder", {{"type", "Fuse"}}}};
  const std::string of = "attn experiment --model llama --tokenizer few --text ABCCBA ";
  EXPECT_THAT(out_of(of + "--lens"), HasSubstr("#"));
  EXPECT_THAT(out_of(of + "--attribution"), HasSubstr("logit of #"));
  EXPECT_THAT(out_of(of + "--next --count 61"), AllOf(HasSubstr("\n#60"), HasSubstr("\n'C'")));
  int with_text = 0;
  const json next = json::parse(out_of(of + "--next --count 61 --json"));
  for (const json& one : next["next"]) {
    with_text += one["token"].is_string();
    EXPECT_EQ(one["token"].is_string(), one["id"].get<int>() < 3);
  }
  EXPECT_EQ(with_text, 3);
  EXPECT_TRUE(json::parse(out_of(of + "--attribution --json"))["token"].is_null());
}

TEST_F(Experiment, JsonTellsWhatTheNumbersAreOf) {
  const json of_two = found("--attribution --tokens B C"), of_one = found("--attribution --tokens B");
  EXPECT_EQ((json{of_two["token"], of_two["less"]}), (json{"B", "C"}));
  EXPECT_EQ(of_two["token_id"], 1);
  EXPECT_EQ(of_two["less_id"], 2);
  EXPECT_TRUE(of_one["less"].is_null() && of_one["less_id"].is_null());
  EXPECT_EQ(of_one["position"], of_one["ids"].size());
  EXPECT_TRUE(found("--effects --exact 0")["estimate_error"].is_null());  // nothing was compared
  EXPECT_TRUE(found("--effects --exact 1")["estimate_error"].is_number());
}

// Columns are narrow, so that quotes would be all that they show.
TEST_F(Experiment, ColumnsAreToldApart) {
  const std::string out = out_of(line("--next --other-text BCD"));
  std::istringstream lines(out);
  std::string names;
  for (int i = 0; i < 3; ++i) std::getline(lines, names);
  EXPECT_THAT(names, testing::Not(HasSubstr("'"))) << out;
  EXPECT_THAT(names, testing::ContainsRegex("[A-Za-z0-9]  +[A-Za-z0-9]"));
}

// Of words that begin alike, a cell of a few columns shows the same letters.
TEST_F(Experiment, LongTokensAreToldApart) {
  json vocabulary{{"A", 0}, {"B", 1}};
  for (int id = 2; id < 61; ++id) vocabulary["resemble" + std::to_string(id)] = id;
  std::filesystem::create_directory(path("long"));
  std::ofstream(path("long/tokenizer.json"))
      << json{{"model", {{"vocab", vocabulary}, {"merges", json::array()}}}, {"decoder", {{"type", "Fuse"}}}};
  const std::string of = "attn experiment --model llama --tokenizer long --text ABBA --next ";
  const auto drawn_in = [](const std::string& out) { return out.substr(0, out.find("\ntoken ")); };
  const std::string narrow = drawn_in(out_of(of + "--count 12 --without 1.1")), wide = drawn_in(out_of(of));
  for (const std::string& out : {narrow, wide}) {
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), 80) << line;
    EXPECT_THAT(out, Not(HasSubstr("…"))) << out;
    EXPECT_THAT(out, testing::ContainsRegex("\nresemble[0-9]+ "));
  }
  EXPECT_THAT(narrow, testing::ContainsRegex("as it is +changed"));
  const std::string letters = out_of("attn experiment --model llama --text ABCDEFGHIJKLMNOPQRSTUVWX");
  EXPECT_THAT(letters, HasSubstr("B  C  D  E"));
}

// A title of two long tokens takes two lines.
TEST_F(Experiment, TitlesFitEightyColumns) {
  const std::string a(17, 'a'), b(17, 'b');
  const json vocabulary{{"A", 0}, {"B", 1}, {a, 2}, {b, 3}};
  std::filesystem::create_directory(path("titles"));
  const json added{{{"id", 2}, {"content", a}}, {{"id", 3}, {"content", b}}};
  std::ofstream(path("titles/tokenizer.json")) << json{{"model", {{"vocab", vocabulary}, {"merges", json::array()}}},
                                                       {"added_tokens", added},
                                                       {"decoder", {{"type", "Fuse"}}}};
  expect_layout(
      out_of("attn experiment --model llama --tokenizer titles --text ABBA --patch-from AABA --tokens " + a + ' ' + b));
}

TEST_F(Experiment, ManyPassesAreAnnounced) {
  std::ofstream(path("t.txt")) << std::string(200, 'a');
  out_of(
      "attn train --text t.txt --layers 6 --heads 6 --width 12 --context 8 --batch 2 --steps 1 --out deep.safetensors");
  const std::string deep = "attn experiment --model deep.safetensors --text aba --effects --json";
  const Ran all = run(deep);
  EXPECT_EQ(
      all.err,
      "attn experiment: all heads take about 22 passes; --exact 8 takes fewer than 12, and estimates the others\n");
  EXPECT_EQ(json::parse(all.out)["after"].size(), 6u);
  for (const char* flags : {" --exact 8", " --without 1", " --other-text abb"})
    EXPECT_EQ(run(deep + flags).err, "") << flags;
  EXPECT_EQ(run(line("--effects")).err, "");
}

// An encoder gives no chances of tokens: only experiments on what its heads give take it.
TEST_F(Experiment, TakesAnEncoder) {
  std::filesystem::copy(kTests / "lm/data/bert", path("bert"));
  std::filesystem::copy(path("llama/tokenizer.json"), path("bert/tokenizer.json"));
  const auto of = [](const std::string& flags) { return "attn experiment --model bert --text ABBA " + flags; };
  const json changes = json::parse(out_of(of("--changes --without 1.2 --json")))["changes"];
  EXPECT_EQ(changes[0], json({0.0, 1.0, 0.0, 0.0}));
  EXPECT_GT(changes[1][0].get<double>(), 0);
  EXPECT_THAT(out_of(of("--changes --without 1.2 --by mean --mean-of AB CD")), HasSubstr("1.2"));
  EXPECT_THAT(out_of(of("--rollout")), HasSubstr("rollout"));
  for (const char* flags : {"", "--next", "--changes --without 1.1 --other-model llama"}) {
    refused(of(flags), 2, {"an encoder only with --rollout or --changes"});
  }
}

// A model beside itself with noise in its weights: what each of the two tells alone.
TEST_F(Experiment, PrintsEightyColumnsAndDraws) {
  for (const char* flags : {"", "--without 1.1", "--next --keep-only 1.1,2.2", "--next --hide 1 --tokens A B",
                            "--effects", "--lens --skip 1:mlp", "--attribution --hide 1", "--rollout --scale 1.1=0.5",
                            "--scores --weights 1.2=previous --without 1.2", "--changes --skip 1:attention",
                            "--step model.layers.0.self_attn.context=2", "--effects --other-model llama",
                            "--effects --exact 2", "--effects --exact 0", "--next --other-text AB",
                            "--other-model llama", "--scores --other-model llama", "--changes --other-model llama"}) {
    SCOPED_TRACE(flags);
    expect_layout(out_of(line(flags)));
  }
  EXPECT_THAT(out_of(line("--without 1")), HasSubstr("mean"));
  EXPECT_THAT(out_of(line("--effects --exact 2")),
              AllOf(HasSubstr("6 of 8 are estimates"), HasSubstr("exact"), HasSubstr("estimate\n")));
  EXPECT_THAT(out_of(line("--effects --exact 8")), Not(HasSubstr("estimate")));
  EXPECT_THAT(drawn("--effects"), HasSubstr("layers"));
  EXPECT_THAT(drawn("--without 1.1"), AllOf(HasSubstr("as it is"), HasSubstr("changed"), HasSubstr("loss")));
  EXPECT_THAT(drawn("--next --tokens A B"), AllOf(HasSubstr(">A<"), HasSubstr("chance"), Not(HasSubstr("changed"))));
  EXPECT_THAT(drawn("--next --other-text AB"), AllOf(HasSubstr("the first"), HasSubstr("the other")));
}

// A table to read names its column, and has the numbers of --json, the largest first.
TEST_F(Experiment, TablesOfHeadsAreThoseOfJson) {
  const struct {
    const char *flags, *column, *key;
  } kTables[] = {{"--changes --without 1.2", "change", "changes"},
                 {"--attribution --tokens A B", "logit", "heads"},
                 {"--effects", "loss", "after"},
                 {"--patch-from ABDABC --tokens A B", "share", "heads"},
                 {"--scores", "previous token", "previous"},
                 {"--scores", "duplicate token", "duplicate"},
                 {"--scores", "induction", "induction"}};
  for (const auto& [flags, column, key] : kTables) {
    const std::string line = std::string("attn experiment --model llama --text ABCABC ") + flags;
    SCOPED_TRACE(line + ": " + column);
    const json found = json::parse(out_of(line + " --json"));
    const auto lines = lines_of(out_of(line));
    const std::regex heading(std::string("head +") + column), row(R"((\d)\.(\d) +([-+]\d\.\d{4}))");
    auto at = std::ranges::find_if(lines, [&](const std::string& text) { return std::regex_match(text, heading); });
    ASSERT_NE(at, lines.end());
    EXPECT_EQ(*(at - 1), "");
    std::vector<double> sizes;
    for (std::smatch parts; ++at != lines.end() && std::regex_match(*at, parts, row);) {
      const double told = std::stod(parts[3]), whole = found[key][std::stoul(parts[1]) - 1][std::stoul(parts[2]) - 1];
      EXPECT_NEAR(told, whole - found.value("before", 0.0), 6e-5);
      sizes.push_back(std::abs(told));
    }
    EXPECT_EQ(sizes.size(), std::string(flags) == "--scores" ? 3u : 8u);
    EXPECT_TRUE(std::ranges::is_sorted(sizes, std::greater()));
  }
}

TEST_F(Experiment, RefusesWhatItCannotFollow) {
  const auto refused = [&](const std::string& flags, const std::string& says, int status = 2) {
    const Ran ran = run(line(flags));
    EXPECT_EQ(ran.status, status) << flags;
    EXPECT_THAT(ran.err, StartsWith("attn: error: "));
    EXPECT_THAT(ran.err, HasSubstr(says)) << flags;
    EXPECT_EQ(ran.out, "");
  };
  refused("--without 3.1", "2 layers of 4 heads");
  refused("--without 1.0", "a head of layer 1, from 1.1 to 1.4");
  refused("--without 1.1 --without 1.2", "twice");
  for (const char* flag : {"--without", "--keep-only", "--skip"}) {
    refused(flag + std::string(" ''"), flag + std::string("] expected a value"));
    refused(flag + std::string(" 1.1,"), flag + std::string("] expected"));
  }
  refused("--step model.layers.0.self_atn.context=2", "did you mean model.layers.0.self_attn.context?");
  refused("--scale 1.1=x", "a finite factor");
  refused("--weights 1.1=first", "uniform, previous or none");
  refused("--skip 1:mpl", ":attention or :mlp");
  for (const char* wrong : {"10", "0", "1.1=10", "1=0", "x", "1.1=", "="}) {
    refused(std::string("--hide ") + wrong, "a token from 1 to 9, as 2, or behind a head or a layer, as 1.2=2");
  }
  refused("--hide 3=1", "a head or a layer of 2 layers");
  refused("--hide 1.9=1", "a head of layer 1, from 1.1 to 1.4");
  refused("--next --lens", "one of these at a time");
  refused("--by mean", "--without, --keep-only or --effects");
  refused("--exact 2", "--effects beside it; found none of them");
  refused("--effects --exact -1", "--exact");
  refused("--effects --exact 1 --scale 1.1=2", "all 8 heads beside a change");
  refused("--effects --exact 1 --other-text AB", "--exact");
  refused("--without 1.1 --mean-of AB", "--by mean");
  refused("--without 1.1 --by zero --mean-of AB", "--by mean");
  refused("--without 1.1 --by mean --mean-of AB --other-model llama", "one model");
  refused("--without 1.1 --by text", "--from beside text");
  refused("--without 1.1 --from ABCDEFGHI", "--by text beside it");
  refused("--without 1.1 --by text --from AB", "a text of 9 tokens; found 2");
  refused("--tokens A B", "--patch-from");
  refused("--next --tokens A B C", "one or two tokens");
  refused("--next --count 2 --tokens A B", "it without --tokens");
  refused("--attribution --tokens AB", "one token each");
  refused("--patch-from AB --tokens A B", "a text of 9 tokens; found 2");
  refused("--patch-from " + text("other") + " --tokens A", "two tokens");
  refused("--changes", "something that is changed");
  refused("--checkpoints", "attn train --keep-every", 3);
  refused("--checkpoints --output e.svg --colours grey", "figures of cells");
  // The same tokens in a model of other sizes.
  std::ofstream(path("t.txt")) << std::string(200, 'a');
  out_of(
      "attn train --text t.txt --family llama --tokenizer llama --layers 1 --heads 2 --width 8 --context 16 --batch 2 "
      "--steps 1 --out one.safetensors");
  for (const char* flag : {"--effects", "--scores", "--changes"}) {
    refused(std::string(flag) + " --tokenizer llama --other-model one.safetensors",
            "two models of 2 layers of 4 heads");
  }
  EXPECT_THAT(out_of(line("--tokenizer llama --other-model one.safetensors")), HasSubstr("Heads are not compared"));
  // A page opens on any head that its layer has.
  const std::string page = "attn report --output page.html --tokenizer llama --text ABCA --model " +
                           std::string(ATTN_SOURCE) + "/tests/lm/data/qwen3_5_text ";
  out_of(page + "--layer 1 --head 6"), out_of(page + "--layer 2 --head 4");
  EXPECT_THAT(run(page + "--layer 2 --head 5").err, HasSubstr("[--head] expected a number from 1 to 4; found 5"));
  EXPECT_THAT(run(page + "--head 7").err, HasSubstr("[--head] expected a number from 1 to 6; found 7"));
  // Models with as many layers and heads that attend, but other states, are refused either way round. Losses are told.
  const std::string states = std::string(ATTN_SOURCE) + "/tests/lm/data/qwen3_5_text",
                    others = std::string(ATTN_SOURCE) + "/tests/lm/data/olmo_hybrid";
  for (const auto& [one, other] : {std::pair{states, others}, {others, states}}) {
    const std::string both = "attn experiment --tokenizer llama --text ABCA --model " + one + " --other-model " + other;
    for (const char* flag : {" --effects", " --scores", " --changes"}) {
      const Ran ran = run(both + flag);
      EXPECT_EQ(ran.status, 2) << ran.err;
      EXPECT_THAT(ran.err, AllOf(HasSubstr("6, 4 and 6 heads"), HasSubstr("3 layers of 4 heads")));
    }
    EXPECT_THAT(out_of(both), HasSubstr("Heads are not compared: here are 3 layers of "));
  }
  refused("--lens --other-model llama",
          "nothing or --next or --effects or --changes or --scores beside it; found --lens");
  refused("--other-text b --lens",
          "nothing or --next or --effects or --scores or --attribution beside it; found --lens");
  refused("--other-model " + std::string(ATTN_SOURCE) + "/examples/data/licences.safetensors", "a vocabulary of 61", 3);
  refused("--other-model " + std::string(ATTN_SOURCE) + "/examples/data/licences.safetensors --tokenizer llama",
          "vocabulary of 61", 3);
  refused("--other-model nowhere", "[--other-model] expected a model at nowhere", 3);
}

}  // namespace
}  // namespace attn::test
