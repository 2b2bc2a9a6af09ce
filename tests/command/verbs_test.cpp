// demo, explain, info and the help: what a person sees in the terminal.
#include <regex>

#include "command/command.hpp"
#include "command/help.hpp"

namespace attn::test {
namespace {

class Verbs : public Command {};

// ---- demo -----------------------------------------------------------------------------------

TEST_F(Verbs, DemoPrintsTheChapter) {
  const std::string text = out_of("attn demo");
  for (const char* printed : {"tensor([0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865])",  // scores of query 2
                              "tensor([0.1455, 0.2278, 0.2249, 0.1285, 0.1077, 0.1656])",  // by sum
                              "tensor([0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581])",  // softmax
                              "tensor([0.4419, 0.6515, 0.5683])",                          // context
                              "tensor([0.4306, 1.4551])",                                  // v1: query 2
                              "tensor([0.1500, 0.2264, 0.2199, 0.1311, 0.0906, 0.1820])",  // v1: weights 2
                              "[-0.0748,  0.0703],",                                       // v2
                              "[0.2758, 0.2460, 0.2462, 0.2319, 0.0000, 0.0000],",         // causal weights
                              "[0.4594, 0.1703, 0.1731,   -inf,   -inf,   -inf],",         // masked scores
                              "[2., 0., 0., 0., 0., 2.],",                                 // dropout of ones
                              "[0.5517, 0.4921, 0.0000, 0.0000, 0.0000, 0.0000],",         // and of weights
                              "[-0.5874,  0.0058,  0.5891,  0.3257],",                     // wrapper
                              "[0.2943, 0.3897],"}) {                                      // weight splits
    EXPECT_THAT(text, HasSubstr(printed));
  }
  EXPECT_THAT(text, HasSubstr("What to type next"));
  expect_layout(text);
}

TEST_F(Verbs, DemoNamesTheWordsOfEachTable) {
  const auto lines = lines_of(out_of("attn demo"));
  const std::vector<std::string> words{"Your", "journey", "starts", "with", "one", "step"};
  int tables = 0;
  for (std::size_t i = 0; i + words.size() < lines.size(); ++i) {
    const bool of_words =
        std::regex_match(lines[i], std::regex("inputs|keys|contexts|weights(: the same|, masked .*)?"));
    if (!of_words || !lines[i + 1].starts_with("tensor([[")) continue;
    ++tables;
    for (std::size_t j = 0; j < words.size(); ++j) EXPECT_THAT(lines[i + 1 + j], testing::EndsWith("  # " + words[j]));
  }
  EXPECT_EQ(tables, 9);
}

TEST_F(Verbs, LongWordsFit) {
  const std::string text = "'" + std::string(90, 'a') + " cat'", cut = std::string(19, 'a') + "…";
  for (const char* verb : {"demo ", "run self-v1 --text ", "explain self-v1 --text "}) {
    const std::string told = out_of("attn " + (verb + text));
    EXPECT_THAT(told, HasSubstr(cut)) << verb;
    expect_layout(told);
  }
}

TEST_F(Verbs, ColourOnlyOnATerminalThatWantsIt) {
  EXPECT_THAT(out_of("attn demo"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(out_of("attn explain causal"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(on_terminal("NO_COLOR=1 TERM=xterm attn demo"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(on_terminal("TERM=dumb attn demo"), Not(HasSubstr("\x1b")));
  const std::string palette = on_terminal("unset COLORTERM; TERM=xterm-256color attn demo");
  EXPECT_THAT(palette, HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(palette, Not(HasSubstr("\x1b[48;2;")));
  EXPECT_THAT(on_terminal("COLORTERM=truecolor TERM=xterm attn demo"), HasSubstr("\x1b[48;2;"));
}

// ---- explain ----------------------------------------------------------------------------------

TEST_F(Verbs, ExplainWritesTheArithmeticOut) {
  const std::string text = out_of("attn explain self-v1");
  for (const char* line :
       {"query_2 = x_2 · W_query = [0.4306, 1.4551]", "0.4306·0.4433 + 1.4551·1.1419 = 1.8524", "1.8524 / √2 = 1.3098",
        "= 0.2264  journey", "context_2 = [0.3061, 0.8210]", "        [0.3061, 0.8210],  # journey"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(Verbs, ExplainFollowsMaskDropoutAndHeads) {
  EXPECT_THAT(out_of("attn explain causal"), HasSubstr("hidden: 4 of 6 keys, from key 3 on"));
  EXPECT_THAT(out_of("attn explain causal"), HasSubstr("context_2 = [-0.5874, 0.0058]"));
  EXPECT_THAT(out_of("attn explain causal --dropout 0.5 --train"), HasSubstr("dropped with chance 0.5"));
  const std::string turned = out_of("attn explain multihead --d-out 8 --rope --query 3");
  EXPECT_THAT(turned, HasSubstr("Rotation: token 3 stands at position 2, counted from 0"));
  EXPECT_THAT(turned, HasSubstr("numbers 1 and 3 turn by 2 · 1.0000 = 2.0000 rad, 114.6°"));
  EXPECT_THAT(turned, HasSubstr("numbers 2 and 4 turn by 2 · 0.0100 = 0.0200 rad, 1.1°"));
  EXPECT_THAT(out_of("attn explain heads --head 2"), HasSubstr("context_2 = [0.5891, 0.3257]"));
  EXPECT_THAT(out_of("attn explain multihead --head 2"), HasSubstr("output_2 = [0.2943, 0.3897]"));
  EXPECT_THAT(out_of("attn explain average --query 3"), HasSubstr("1 / 3 = 0.3333"));
  EXPECT_THAT(out_of("attn explain cross"), HasSubstr("Context: the first four words, (4, 3)"));
}

// The sum of "a·b + c·(-d) + e", a side of a line that explain writes.
double sum_of(std::string terms) {
  std::erase_if(terms, [](char c) { return c == '(' || c == ')'; });
  double sum = 0;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 3) {
    end = terms.find(" + ", begin);
    const std::string term = terms.substr(begin, end - begin);
    const std::size_t times = term.find("·");
    sum += std::stod(term) * (times == std::string::npos ? 1 : std::stod(term.substr(times + std::string("·").size())));
  }
  return sum;
}

TEST_F(Verbs, EveryProductThatExplainWritesIsRight) {
  for (const char* module : {"self-v1", "self-v2", "causal", "heads --heads 2 --head 2", "multihead --heads 2 --head 1",
                             "multihead --heads 2 --head 2", "cross --heads 2 --head 2"}) {
    int count = 0;
    const std::string flags = std::string(module).find("--") == std::string::npos ? "" : " --d-out 4";
    for (const std::string& line : lines_of(out_of(std::string("attn explain ") + module + flags))) {
      std::smatch parts;  // a component of a projection
      if (!std::regex_match(line, parts, std::regex(R"(  \w+\[\d+\] = (.*·.*) = (\S+).*)"))) continue;
      EXPECT_NEAR(sum_of(parts[1]), std::stod(parts[2]), 1e-3) << module << ": " << line;  // each has four places
      ++count;
    }
    EXPECT_GE(count, 6) << module;
  }
}

TEST_F(Verbs, ExplainNumbersItsSectionsInOrder) {
  const std::pair<const char*, int> sections[] = {{"causal --dropout 0.5 --train", 9},
                                                  {"average", 4},
                                                  {"multihead --d-out 8 --rope", 11},
                                                  {"linear --d-out 8", 10},
                                                  {"delta --d-out 8", 13},
                                                  {"gated-delta --d-out 8", 14},
                                                  {"latent --d-out 8 --rope", 13}};
  for (const auto& [module, count] : sections) {
    int expected = 1;
    for (const std::string& line : lines_of(out_of(std::string("attn explain ") + module))) {
      if (!line.empty() && std::isdigit(static_cast<unsigned char>(line[0]))) {
        EXPECT_THAT(line, testing::StartsWith(std::to_string(expected++) + ". ")) << module;
      }
    }
    EXPECT_EQ(expected, count + 1) << module;
  }
}

// The scores and the context from what a cache keeps are those of the keys and values.
TEST_F(Verbs, ExplainTellsTheAbsorbedFormOfALatent) {
  for (const std::string more : {"", " --rope", " --query-latent 3 --latent 5 --qkv-bias", " --rope --scale none"}) {
    const std::string text = out_of("attn explain latent --d-out 8 --query 4 --head 2" + more);
    std::vector<std::string> expanded, absorbed, contexts;
    for (const std::string& line : lines_of(text)) {
      const std::string number = line.substr(line.rfind(" = ") == std::string::npos ? 0 : line.rfind(" = ") + 3);
      if (line.starts_with("  query_4 · key_")) expanded.push_back(number.substr(0, number.find(' ')));
      if (line.starts_with("  q_4 · ")) absorbed.push_back(number.substr(0, number.find(' ')));
      if (line.starts_with("  context_4 = ")) contexts.push_back(number);
    }
    EXPECT_EQ(expanded.size(), 6) << text;
    EXPECT_EQ(expanded, absorbed);
    ASSERT_EQ(contexts.size(), 2);
    EXPECT_EQ(contexts[0], contexts[1]);
    expect_layout(text);
  }
  const std::string turned = out_of("attn explain latent --d-out 8 --rope --query 3");
  EXPECT_THAT(turned, HasSubstr("numbers 5 and 6 turn by 2 · 1.0000 = 2.0000 rad"));
  EXPECT_THAT(turned, HasSubstr("a cache has 6 numbers of a token; the keys and values of its 2 heads are 20"));
}

TEST_F(Verbs, ALatentsFlagsAreItsOwn) {
  for (const auto& [line, error] : std::initializer_list<std::pair<std::string, std::string>>{
           {"run multihead --latent 3", "modules with it: latent"},
           {"run latent --no-out-proj", "--no-out-proj"},
           {"run latent --layer-order kqv", "expected flags that latent uses; found --layer-order"},
           {"run latent --d-out 3", "a number of heads that divides d_out"},
           {"run latent --latent 1000000000000", "lower --d-out, --heads or the latents"}}) {
    const Ran ran = run("attn " + line);
    EXPECT_NE(ran.status, 0) << line;
    EXPECT_THAT(ran.err, HasSubstr(error));
  }
}

TEST_F(Verbs, ExplainKeepsLongVectorsShort) {
  std::string rows;
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 32; ++j) rows.append(std::to_string((i * 7 + j * 13) % 29 - 14)).append(j < 31 ? "," : "\n");
  }
  write("wide.csv", rows);
  const std::string text = out_of("attn explain causal --input wide.csv --query 30 --qkv-bias");
  EXPECT_THAT(text, HasSubstr(" more) = "));
  EXPECT_THAT(text, HasSubstr("query_30 · key_30 = "));
  expect_layout(text);
}

TEST_F(Verbs, ExplainTakesABatchAndItsTokens) {
  write_six_words();
  const std::string text = out_of("attn explain multihead --input batch.npy --tokens words.txt --d-out 2 --query 3");
  EXPECT_THAT(text, HasSubstr("query 3 \"starts\""));
  EXPECT_THAT(text, HasSubstr("output_3 = [0.2856, 0.3593]"));
}

// ---- info -------------------------------------------------------------------------------------

TEST_F(Verbs, InfoTellsTheBuild) {
  const std::string text = out_of("attn info");
  for (const char* key : {"attn ", "compiler ", "build ", "processor ", "features ", "threads ", "libzip "}) {
    EXPECT_THAT(text, HasSubstr(key));
  }
  expect_layout(text);
  const json report = json::parse(out_of("attn info --json"));
  EXPECT_EQ("attn " + report["version"].get<std::string>() + "\n", out_of("attn --version"));
  EXPECT_GE(report["threads"], 1);
  EXPECT_TRUE(report["features"].is_object());
}

TEST_F(Verbs, InfoListsAFile) {
  io::NamedTensors file;
  const std::vector<float> values{1, -3, 5, NAN, INFINITY, 1};
  file.tensors = {{"a", Tensor::from(std::span<const float>(values), {2, 3})}, {"b", Tensor::zeros({0}, DType::i64)}};
  file.metadata["who"] = "me";
  io::save_safetensors(path("f.safetensors"), file);
  const std::string text = out_of("attn info f.safetensors");
  EXPECT_THAT(text, HasSubstr("safetensors, 2 tensors"));
  EXPECT_THAT(text, HasSubstr("who: me"));
  const json report = json::parse(out_of("attn info f.safetensors --json"));
  const json& a = report["tensors"][0]["name"] == "a" ? report["tensors"][0] : report["tensors"][1];
  EXPECT_EQ(a["dtype"], "float32");
  EXPECT_EQ(a["shape"], json({2, 3}));
  EXPECT_EQ(a["bytes"], 24);
  EXPECT_EQ(a["min"], -3.0);
  EXPECT_EQ(a["max"], 5.0);
  EXPECT_EQ(a["mean"], 1.0);
  EXPECT_EQ(a["nan"], 1);
  EXPECT_EQ(a["inf"], 1);
  EXPECT_EQ(report["metadata"]["who"], "me");
  EXPECT_EQ(json::parse(out_of("attn info - --json < f.safetensors"))["tensors"], report["tensors"]);
}

TEST_F(Verbs, InfoOfAModelFitsEightyColumns) {
  const std::string model = ATTN_SOURCE "/examples/data/licences.safetensors";
  const std::string text = out_of("attn info " + model);
  expect_layout(text.substr(text.find('\n') + 1));  // below the path
  for (const char* part : {"all names begin with transformer.", "h.0.attn.c_attn.weight", "no NaN and no infinities",
                           "bytes; --json has all)", "steps: 2500"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(Verbs, InfoKeepsHostileNamesFromTheTerminal) {
  io::NamedTensors file;
  file.tensors = {{"\x1b[2Jname", Tensor::ones({1})}};
  file.metadata["\x1b]0;title"] = "a\nb";
  io::save_safetensors(path("f.safetensors"), file);
  const std::string text = out_of("attn info f.safetensors");
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("\\u001b[2Jname"));
}

// ---- help -------------------------------------------------------------------------------------

// The same example as a shorter run: a flag that it does not have is added, and one that would make it long replaced.
std::string shortened(std::string example) {
  const auto has = [&](const std::string& text) { return example.find(text) != std::string::npos; };
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (has(flag)) return;
    const std::size_t end = example.find('#');  // the shell's comment
    example.insert(std::min(end, example.size()), " " + flag + " " + value + " ");
  };
  if (has("attn train") && !has("--resume")) {
    if (!has("--from")) {
      for (const char* flag : {"--layers", "--heads"}) add(flag, "1");
      add("--width", "8");
    }
    add("--batch", "1");
    add("--context", "8");
    add("--steps", "3");
  }
  if (has("attn generate") || has("attn chat")) add("--tokens", "5");
  if (has("attn chat")) example.append(" <questions.txt");
  if (has("attn bench")) {
    add("--list", "tiny.txt");
    add("--repeats", "1");
  }
  return example;
}

class Help : public Verbs {
 protected:
  // Empties the folder that the examples of a verb run in, and writes the user's text or model where the verb needs it.
  void start(const std::string& verb) const {
    std::filesystem::remove_all(folder());
    std::filesystem::create_directory(folder());
    const bool needs_model = verb == "generate" || verb == "experiment";
    if (verb == "train" || needs_model) write("book.txt", std::string(400, 'a') + "\nAttention is all you need.");
    if (needs_model) {
      std::filesystem::create_directory(path("gpt2"));
      const std::string sizes = verb == "experiment" ? " --layers 2 --heads 2 --context 32 --keep-every 1" : "";
      out_of(shortened("attn train --text book.txt --out model.safetensors" + sizes));
      std::filesystem::copy(path("model.safetensors"), path("gpt2/model.safetensors"));
      std::filesystem::copy(path("config.json"), path("gpt2/config.json"));
    }
    if (verb == "train" || verb == "generate" || verb == "chat") {
      std::filesystem::copy(kTests / "lm/data/llama", path("llama"));
      write("llama/tokenizer.json",
            R"({"model": {"vocab": {"a": 1, "t": 2}, "merges": []}, "decoder": {"type": "Fuse"}})");
      write("llama/tokenizer_config.json", R"({"chat_template": "{{ messages[-1].content }}"})");
      write("conversation.json", R"([{"role": "user", "content": "at"}])");
      write("questions.txt", "at\nta\n");
    }
    if (verb == "tokens") {
      const std::string files = ATTN_SOURCE "/tests/text/data/tokenizers/";
      std::filesystem::create_directory(path("model"));
      for (const char* to : {"tokenizer.json", "model/tokenizer.json"}) {
        std::filesystem::copy(files + "smollm.json", path(to));
      }
      write("model/tokenizer_config.json", R"({"chat_template": "{{ messages[-1].content }}"})");
      write("conversation.json", R"([{"role": "user", "content": "at"}])");
    }
    if (verb == "embed") {
      std::filesystem::copy(kTests / "lm/data/bert", path("minilm"));
      write("minilm/tokenizer.json",
            R"({"model": {"vocab": {"a": 1, "t": 2}, "merges": []}, "decoder": {"type": "Fuse"}})");
      write("sentences.txt", "a\nat ta\n");
    }
    if (verb == "bench") write("tiny.txt", "forward 1,2,16,8 f32 none\n");
  }
};

TEST_F(Help, ListsEveryVerb) {
  EXPECT_THAT(verbs_of(out_of("attn --help")), testing::IsSupersetOf({"demo", "run", "report", "train", "bench"}));
}

TEST_F(Help, SlowExamplesRun) {
  std::vector<std::string> verbs = verbs_of(out_of("attn --help"));
  verbs.emplace_back("");  // of the command as a whole
  for (const std::string& verb : verbs) {
    const auto examples = examples_of(out_of("attn " + verb + " --help"));
    EXPECT_GE(examples.size(), 2u) << verb;
    start(verb);
    for (const std::string& example : examples) {
      const Ran ran = run(shortened(example));
      const bool check_failed = verb == "check" && ran.status == 1;  // what such an example is there to show
      EXPECT_TRUE(ran.status == 0 || check_failed) << example << "\n" << ran.err;
    }
  }
}

TEST_F(Help, FitsTheTerminal) {
  expect_layout(out_of("attn --help"));
  for (const std::string& verb : verbs_of(out_of("attn --help"))) {
    SCOPED_TRACE(verb);
    expect_layout(out_of("attn " + verb + " --help"));
  }
}

TEST_F(Help, NamesOfModulesStandApartFromWhatTheyAre) {
  const std::string help = out_of("attn show --help");
  for (const char* name : {" multihead ", " gated-delta ", " latent "}) EXPECT_THAT(help, HasSubstr(name));
}

TEST_F(Help, ValuesMayFollowAnEqualsSign) {
  const std::string plain = out_of("attn explain causal --query 3");
  EXPECT_EQ(out_of("attn explain --query=+3 causal"), plain);
  EXPECT_EQ(out_of("attn explain --query 3 -- causal"), plain);
  EXPECT_EQ(out_of("attn show simple --colors grey"), out_of("attn show simple --colours grey"));
}

TEST_F(Help, NeedsNoRequiredFlags) {
  for (const std::string& verb : verbs_of(out_of("attn --help"))) {
    EXPECT_THAT(out_of("attn " + verb + " --help"), HasSubstr("Usage: attn " + verb)) << verb;
  }
  EXPECT_THAT(out_of("attn run causal --help"), HasSubstr("--save-steps"));
}

}  // namespace
}  // namespace attn::test
