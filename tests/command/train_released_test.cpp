// attn train --from: a released model goes on, resumes bit for bit, and is saved as a folder that others read.
#include <limits>

#include "attn/generate.hpp"
#include "attn/gpt.hpp"
#include "attn/pretrained.hpp"
#include "command/command.hpp"
#include "ops/dense.hpp"

namespace attn::test {
namespace {

namespace fs = std::filesystem;

class TrainReleased : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    fs::copy(kTests / "lm/data/llama", path("llama"));
    write("llama/tokenizer.json", R"({"model": {"vocab": {"a": 1, "b": 2, "c": 3, "ab": 4, "d": 5}, "merges": ["a b"]},
        "decoder": {"type": "Fuse"}})");
    std::string text;
    for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "abcd" : "cabd";
    write("text.txt", text);
  }

  static constexpr const char* kRun =
      "OMP_NUM_THREADS=1 attn train --from llama --text text.txt --context 16 --batch 4 --steps 30 --warmup 3 --lr "
      "0.01 --eval-every 10 ";
};

// Returns each step's loss, from the lines that --json --log-every 1 prints.
std::vector<double> losses_of(const std::string& out) {
  std::istringstream lines(out);
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);) {
    losses.push_back(nlohmann::json::parse(line)["loss"].get<double>());
  }
  return losses;
}

TEST_F(TrainReleased, LearnsAndIsAFolder) {
  const auto losses = losses_of(out_of(std::string(kRun) + "--out tuned --json --log-every 1"));
  ASSERT_EQ(losses.size(), 30u);
  EXPECT_GT(losses.front(), 3);
  EXPECT_LT(losses.back(), 1.5);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "model.training.safetensors"}) {
    EXPECT_TRUE(fs::exists(path("tuned") / name)) << name;
  }
  EXPECT_EQ(read(path("tuned/tokenizer.json")), read(path("llama/tokenizer.json")));
  LanguageModel before = load_language_model(path("llama")), after = load_language_model(path("tuned"));
  EXPECT_EQ(before.parameters().size(), after.parameters().size());
  const auto text = nlohmann::json::parse(
      out_of("attn generate --model tuned --prompt abcdcab --tokens 4 --temperature 0 --json"))["text"];
  EXPECT_THAT(read(path("tuned/model.svg")), HasSubstr("nats a token"));
  EXPECT_EQ(text, "dcabd");  // the tokens d, c, ab, d: abcd and cabd are the words of the text
}

// Products of bfloat16 change the loss by less than one rounding of the first one.
TEST_F(TrainReleased, LearnsWithProductsOfBfloat16) {
  constexpr double epsilon = 1. / 256;
  const std::string flags = std::string(kRun) + "--json --log-every 1 ";
  const auto rounded = losses_of(out_of(flags + "--out rounded --precision medium"));
  const auto exact = losses_of(out_of(flags + "--out exact"));
  ASSERT_EQ(rounded.size(), 30u);
  ASSERT_EQ(exact.size(), 30u);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], epsilon * exact[0]) << i;
  EXPECT_EQ(rounded != exact, stored(Precision::medium) == DType::bf16);  // as this processor has it
  EXPECT_LT(rounded.back(), 1.5);
  const auto saved = io::load(path("rounded/model.safetensors"));
  EXPECT_EQ(saved.tensors.front().second.dtype(), DType::f32);
}

// With --force a model takes the place of the one that it was made of.
TEST_F(TrainReleased, AModelMayBeTrainedOnInItsPlace) {
  const std::string train = "attn train --text text.txt --context 16 --batch 4 --steps 2 --warmup 1 --from ";
  out_of(train + "llama --out mine");
  const std::string before = read(path("mine/model.safetensors"));
  refused(train + "mine --out mine", 2, {"--out", "--force"});
  EXPECT_EQ(read(path("mine/model.safetensors")), before);
  out_of(train + "mine --out mine --force");
  EXPECT_NE(read(path("mine/model.safetensors")), before);
}

// Templates in a folder of their own go along, and the folder may be replaced; a file that nobody knows may not.
TEST_F(TrainReleased, KeepsAdditionalTemplates) {
  fs::create_directory(path("llama/additional_chat_templates"));
  write("llama/additional_chat_templates/tool_use.jinja", "{{ messages[-1].content }}");
  write("llama/additional_chat_templates/note.txt", "no template");
  for (const char* how : {"", " --force"}) {
    out_of("attn train --from llama --text text.txt --context 16 --batch 4 --steps 2 --warmup 1 --out tuned" +
           std::string(how));
    EXPECT_EQ(read(path("tuned/additional_chat_templates/tool_use.jinja")), "{{ messages[-1].content }}");
    EXPECT_FALSE(fs::exists(path("tuned/additional_chat_templates/note.txt")));
  }
  write("tuned/additional_chat_templates/mine.txt", "mine");
  const Ran ran = run("attn train --from llama --text text.txt --context 16 --steps 2 --out tuned --force");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("additional_chat_templates"));
  EXPECT_EQ(read(path("tuned/additional_chat_templates/mine.txt")), "mine");
}

TEST_F(TrainReleased, ResumesBitForBit) {
  out_of(std::string(kRun) + "--out whole");
  out_of(std::string(kRun) + "--out parts --until 13");
  out_of("OMP_NUM_THREADS=1 attn train --text text.txt --out parts --resume");
  for (const char* name : {"model.safetensors", "config.json", "model.training.safetensors"}) {
    EXPECT_EQ(read(path("whole") / name), read(path("parts") / name)) << name;
  }
}

// A file that attn train wrote has no tokenizer beside it: its tokens are bytes, in what is made of it, too.
TEST_F(TrainReleased, GoesOnFromAFileOfBytes) {
  fs::create_directory(path("bytes"));
  out_of(
      "attn train --text text.txt --layers 1 --heads 1 --width 16 --context 16 --steps 1 --out bytes/own.safetensors");
  const std::string line = " --text text.txt --context 16 --batch 2 --steps 4 --out ";
  out_of("attn train --from bytes/own.safetensors" + line + "whole");
  out_of("attn train --from bytes/own.safetensors" + line + "parts --until 2");
  out_of("attn train --text text.txt --out parts --resume");
  EXPECT_EQ(read(path("whole/model.safetensors")), read(path("parts/model.safetensors")));
  EXPECT_FALSE(fs::exists(path("whole/tokenizer.json")));
  out_of("attn generate --model whole --prompt a --tokens 2");
  fs::remove_all(path("bytes"));
  EXPECT_THAT(run("attn train --from llama/model.safetensors" + line + "beside").err, HasSubstr("loss"));
  EXPECT_EQ(read(path("beside/tokenizer.json")), read(path("llama/tokenizer.json")));
}

// A weight that no text reaches makes no loss infinite, and would be found when the run first saves.
TEST_F(TrainReleased, WeightsThatAreNotFiniteAreFoundBeforeTheFirstStep) {
  const auto spoil = [&](const std::string& file, const std::string& name) {
    io::NamedTensors all = io::load(path(file));
    for (auto& [called, tensor] : all.tensors) {
      if (called == name) tensor.set({0, 0}, std::numeric_limits<double>::quiet_NaN());
    }
    io::save_safetensors(path(file), all);
  };
  out_of(std::string(kRun) + "--out tuned --until 2");
  spoil("tuned/model.training.safetensors", "model.model.embed_tokens.weight");
  refused(
      "attn train --text text.txt --out tuned --resume", 3,
      {"finite weights to begin with in ", "tuned/model.training.safetensors; found nan in model.embed_tokens.weight"});
  spoil("llama/model.safetensors", "model.embed_tokens.weight");
  refused(std::string(kRun) + "--out out --on-nan skip", 3,
          {"finite weights to begin with in llama; found nan in model.embed_tokens.weight"});
}

TEST_F(TrainReleased, RefusesWithAReason) {
  write("short.txt", "abcd");
  const auto refused = [&](const std::string& flags, const char* reason, int status) {
    const Ran ran = run("attn train " + (flags.find("--text") == flags.npos ? "--text text.txt " + flags : flags));
    EXPECT_EQ(ran.status, status) << flags;
    EXPECT_THAT(ran.err, HasSubstr(reason)) << flags;
    EXPECT_FALSE(fs::exists(path("out"))) << flags;
  };
  refused("--from nowhere --out out", "nothing there", 3);
  refused("--from text.txt --out out", "a file of another kind", 3);
  refused("--from llama --out out.safetensors", "a folder for the model", 2);
  refused("--from llama --out none/out", "a folder to write into", 3);
  refused("--from llama --out out --layers 3", "whose model has its own", 2);
  refused("--from llama --out out --context 65", "1 to 64, as the model takes", 2);
  refused("--from llama --out out --text short.txt", "more text", 3);
  refused("--from llama --out out --batch 0", "at least 1", 2);
  out_of("attn train --from llama --text text.txt --context 16 --batch 4 --steps 2 --out tuned");
  const std::string kept = read(path("tuned/model.safetensors"));
  EXPECT_THAT(run(std::string(kRun) + "--out tuned").err, HasSubstr("--resume"));
  EXPECT_EQ(run("attn train --text text.txt --from llama --out tuned --resume").status, 2);
  EXPECT_EQ(read(path("tuned/model.safetensors")), kept);
  // A checkpoint whose config speaks of other sizes.
  io::NamedTensors file = io::load(path("tuned/model.training.safetensors"));
  std::string& config = file.metadata["config.json"];
  config.replace(config.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 4000");
  io::save_safetensors(path("tuned/model.training.safetensors"), file);
  const Ran lied = run("attn train --text text.txt --out tuned --resume");
  EXPECT_EQ(lied.status, 3);
  EXPECT_THAT(lied.err, HasSubstr("4000 layers"));
}

// Every family is trained from scratch, resumed with the same bits, and written as a file that generates.
TEST_F(TrainReleased, ANewModelOfEveryFamily) {
  for (const std::string& family : language_model_families()) {
    SCOPED_TRACE(family);
    const std::string shares = family == "gpt2" || family == "minicpm3" ? "" : " --kv-heads 1";
    const std::string line =
        "attn train --text text.txt --family " + family + shares +
        " --layers 2 --heads 2 --width 16 --context 16 --batch 2 --steps 4 --warmup 1 --eval-every 2";
    out_of(line + " --out whole.safetensors --force");
    out_of(line + " --out parts.safetensors --force --until 2");
    out_of("attn train --text text.txt --out parts.safetensors --resume");
    EXPECT_EQ(read(path("whole.safetensors")), read(path("parts.safetensors")));
    EXPECT_EQ(open_pretrained(path("whole.safetensors")).config.family, family);
    out_of("attn generate --model whole.safetensors --prompt ab --tokens 5");
  }
}

TEST_F(TrainReleased, AConfigSaysAll) {
  out_of(
      "attn train --text text.txt --config llama/config.json --tokenizer llama --out m.safetensors --steps 2 --batch 2 "
      "--warmup 1");
  EXPECT_EQ(open_pretrained(path("m.safetensors")).config.heads, 4);
  for (const char* wrong : {"--config llama/config.json --layers 3", "--config llama/config.json --family llama",
                            "--config llama/none.json", "--kv-heads 1", "--family llama --dropout 0.1",
                            "--family llama --gelu exact", "--family mamba", "--family llama --heads 4 --kv-heads 3",
                            "--config llama/config.json", "--from m.safetensors --family llama"}) {
    const Ran ran = run("attn train --text text.txt --out other " + std::string(wrong));
    EXPECT_NE(ran.status, 0) << wrong;
    EXPECT_FALSE(std::filesystem::exists(path("other"))) << wrong;
  }
}

// No reader could tell that the tokens of more than 256 are bytes.
TEST_F(TrainReleased, AModelOfBytesHasTheirNumber) {
  std::string config = read(path("llama/config.json"));
  const std::string tokens = "\"vocab_size\": 61";
  for (const int more : {300, 256}) {
    write("more.json",
          std::string(config).replace(config.find(tokens), tokens.size(), "\"vocab_size\": " + std::to_string(more)));
    const Ran ran = run("attn train --text text.txt --config more.json --out m.safetensors --steps 1 --batch 1");
    EXPECT_EQ(ran.status, more == 256 ? 0 : 3) << ran.err;
    EXPECT_EQ(ran.err.find("[--tokenizer] expected the folder of a tokenizer") == std::string::npos, more == 256);
  }
  out_of("attn generate --model m.safetensors --prompt a --tokens 2");
}

TEST_F(TrainReleased, AResumedRunNamesTheTokenizerThatIsMissing) {
  const std::string line = "attn train --text text.txt --out m.safetensors ";
  out_of(line + "--tokenizer llama --layers 1 --heads 1 --width 16 --context 16 --steps 4 --until 2");
  refused(line + "--resume", 3,
          {"[--tokenizer] expected the tokenizer of 6 tokens", "found one of 256, the bytes", "give the --tokenizer"});
  out_of(line + "--tokenizer llama --resume");
}

// What somebody has changed in it would be written over.
TEST_F(TrainReleased, AResumedRunDoesNotReplaceAConfigThatWasEdited) {
  out_of(std::string(kRun) + "--out tuned --until 2");
  const std::string config = read(path("tuned/config.json"));
  write("tuned/config.json", config + " ");
  refused("attn train --text text.txt --out tuned --resume", 3,
          {"[--resume]", "tuned/config.json\" as the run wrote it", "move it away"});
  std::filesystem::remove(path("tuned/config.json"));
  out_of("attn train --text text.txt --out tuned --resume");
  EXPECT_EQ(read(path("tuned/config.json")), config);
}

TEST_F(TrainReleased, TellsWhatTheTokenizerLacks) {
  const std::string line = " --tokenizer llama --layers 1 --heads 1 --width 16 --context 4 --steps 1 --batch 1 --force";
  std::string text;
  for (int i = 0; i < 10; ++i) text += "abcdxyabcd yabcdabcdabcd";
  write("lacks.txt", text);
  const Ran ran = run("attn train --text lacks.txt --out m.safetensors" + line);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(run("attn train --text text.txt --out m.safetensors" + line).err, Not(HasSubstr("no token for")));
  EXPECT_THAT(
      ran.err,
      HasSubstr(
          "the tokenizer has no token for 30 of 240 characters: 'y' (20), 'x' (10); the model cannot learn them"));
}

// What is wrong is told in flags, and not in the keys of a file that nobody gave.
TEST_F(TrainReleased, RefusesSizesByTheirFlags) {
  const std::string line = "attn train --text text.txt --out m.safetensors --heads 2 ";
  refused(line + "--family olmo_hybrid --layers 1 --width 16", 2, {"[--layers] expected at least 2"});
  refused(line + "--family llama --layers 5000 --width 16", 2, {"expected --layers to be at most 4096"});
  refused(line + "--family llama --width 2", 2, {"expected --width / --heads from 2"});
  refused(line + "--family llama --kv-heads 3 --width 16", 2, {"expected --kv-heads to be a divisor of --heads"});
}

// With one position nothing is behind a token: the last line shows no sample, or one of tokens by themselves.
TEST_F(TrainReleased, AContextOfOneToken) {
  for (const char* family : {"gpt2", "llama"}) {
    const std::string line =
        "attn train --text text.txt --layers 1 --heads 1 --width 16 --context 1 --steps 1 --family ";
    out_of(line + family + " --out " + family + ".safetensors");
  }
  out_of("attn generate --model gpt2.safetensors --prompt ab --tokens 4");
}

// GPT-2 goes on as any family does, with its own dropout, and in Hugging Face's very names.
TEST_F(TrainReleased, AGpt2GoesOn) {
  Generator rng(3);
  GPT model({.vocab_size = 61, .context_length = 16, .layers = 2, .heads = 2, .width = 16, .dropout = 0.2}, rng);
  std::filesystem::create_directory(path("gpt2"));
  save_language_model(path("gpt2"), model);
  std::filesystem::copy(path("llama/tokenizer.json"), path("gpt2/tokenizer.json"));
  const std::string line = "attn train --from gpt2 --text text.txt --context 8 --batch 2 --steps 4 --out ";
  out_of(line + "whole");
  out_of(line + "parts --until 2");
  out_of("attn train --text text.txt --out parts --resume");
  EXPECT_EQ(read(path("whole/model.safetensors")), read(path("parts/model.safetensors")));
  EXPECT_EQ(open_pretrained(path("whole")).config.dropout, 0.2);
}

}  // namespace
}  // namespace attn::test
