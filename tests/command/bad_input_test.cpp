// Wrong input gives one clear message and the right exit code, and changes no file.
#include "command/command.hpp"

namespace attn::test {
namespace {

constexpr int kUsage = 2, kData = 3;

class BadInput : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write_six_words();
    write("z.npy", "an older result");
    write("w.safetensors", "older weights");
    std::filesystem::create_directory(path("folder"));
  }
};

TEST_F(BadInput, SaysItInWordsOfTheCommand) {
  refused("attn info missing.npy", kData, {"attn: error: expected a file to read; found no file \"missing.npy\"\n"});
  refused("attn run causal --input randm:3,4", kUsage, {"[--input]", "randm:3,4", "did you mean randn?"});
  refused("attn draw randnn:3,4", kUsage, {"[WHAT]", "did you mean randn?"});
  refused("attn help trian", kUsage, {"did you mean train? Try attn help --help\n"});
  refused("attn run causal --dropout 1.5", kUsage, {"[--dropout] expected a number from 0 to 1; found 1.5"});
  write("cut.npy", std::string("\x93NUMPY\1\0\x76\0{'descr': '<f4'", 25));
  refused("attn info cut.npy", kData, {"error: expected an npy header of 118 bytes", "the file is cut off"});
}

TEST_F(BadInput, Usage) {
  refused("attn sdap", kUsage, {"did you mean sdpa?"});
  refused("attn frobnicate", kUsage, {"frobnicate", "attn --help"});
  refused("attn --frobnicate", kUsage, {"--frobnicate"});
  refused("attn run transformer --input x.csv", kUsage, {"transformer", "multihead"});
  refused("attn run causal --input x.csv --frobnicate", kUsage, {"--frobnicate", "attn run --help"});
  refused("attn run causal --input x.csv --output", kUsage, {"--output"});
  refused("attn run causal --input x.csv --d-out two", kUsage, {"--d-out", "two"});
  refused("attn run causal --input x.csv --d-out 0", kUsage, {"--d-out"});
  refused("attn run causal --input x.csv --d-out 2.0", kUsage, {"--d-out", "2.0"});
  refused("attn run heads --input x.csv --heads -1", kUsage, {"--heads", "positive", "-1"});
  refused("attn run causal --input x.csv --output --json", kUsage, {"--output", "a value"});
  refused("attn run causal --input x.csv --no-mask=3", kUsage, {"--no-mask", "no value"});
  refused("attn run causal --input x.csv simple", kUsage, {"simple", "attn run --help"});
  refused("attn explain causal --query ''", kUsage, {"--query", "whole number"});
  refused("attn show causal --item 99999999999999999999", kUsage,
          {"whole number of 64 bits; found 99999999999999999999"});
  refused("attn generate --model M --seed 18446744073709551616", kUsage, {"--seed", "whole number of 64 bits"});
  refused("attn generate --model M --tokens 1e3", kUsage, {"expected a whole number; found 1e3"});
  refused("attn show causal --width 1", kUsage, {"--width", "20 to 10000"});
  refused("attn sdpa --q x.csv --k x.csv --v x.csv --block-size 2", kUsage, {"--block-size", "--blocks"});
  refused("attn run causal --input x.csv --seed one", kUsage, {"--seed", "one"});
  refused("attn run causal --input x.csv --rng cuda", kUsage, {"cuda"});
  refused("attn run causal --input x.csv --layer-order vkq", kUsage, {"vkq"});
  refused("attn sdpa --q x.csv --k x.csv", kUsage, {"--v", "attn sdpa --help"});
  refused("attn sdpa --q x.csv --k x.csv --v x.csv --causal left", kUsage, {"left"});
}

TEST_F(BadInput, Values) {
  refused("attn run causal --input x.csv --dropout 1.5", kUsage, {"dropout", "1.5"});
  refused("attn run causal --input x.csv --dropout nan", kUsage, {"dropout"});
  refused("attn run causal --input x.csv --scale big", kUsage, {"--scale", "big"});
  refused("attn run causal --input x.csv --scale inf", kUsage, {"--scale"});
  refused("attn run multihead --input x.csv --heads 2 --output z.npy", kUsage, {"2 heads for d_out = 3", "--d-out"});
  refused("attn run cross --input x.csv --d-out 4 --heads 3 --context x.csv", kUsage, {"3 heads for d_out = 4"});
  refused("attn run multihead --input x.csv --d-out 6 --rope", kUsage, {"--rope", "heads of an even size", "found 3"});
  refused("attn run multihead --input x.csv --d-out 4 --rope --rope-theta 0", kUsage, {"--rope-theta", "above 0"});
  refused("attn run multihead --input x.csv --d-out 4 --rope --rope-theta -0.30000000000000004", kUsage,
          {"found -0.30000000000000004\n"});
  refused("attn run multihead --input x.csv --d-out 4 --rope --rope-theta -0.3", kUsage, {"found -0.3\n"});
  refused("attn run multihead --input x.csv --d-out 4 --rope --rope-theta nan", kUsage, {"--rope-theta"});
  refused("attn run multihead --input x.csv --d-out 8 --rope --rope-theta 1e-300", kUsage, {"finite"});
  refused("attn explain causal --query 7", kUsage, {"--query", "1 to 6"});
  refused("attn explain causal --query 0", kUsage, {"--query"});
  refused("attn explain multihead --head 3", kUsage, {"--head", "1 to 2"});
  refused("attn explain causal --key 7", kUsage, {"--key", "1 to 6, the number of keys"});
  refused("attn sdpa --q x.csv --k x.csv --v x.csv --softcap -1", kUsage, {"softcap"});
}

TEST_F(BadInput, ValuesAreNamedByTheirFlags) {
  refused("attn run causal --input x.csv --d-out 4 --rope --rope-theta 1e-300", kUsage,
          {"[--rope-theta] expected a number whose powers are finite in float32; found 1e-300"});
  refused("attn run causal --input randn:3,0", kData,
          {"(batch, tokens, d_in) with a d_in of at least 1; found (3, 0)"});
  const Ran order = run("attn run simple --layer-order kqv");
  EXPECT_THAT(order.err, AllOf(HasSubstr("modules with it: self-v2"), Not(HasSubstr("latent"))));
}

TEST_F(BadInput, FlagsThatTheModuleDoesNotUse) {
  refused("attn run self-v1 --input x.csv --heads 2", kUsage, {"--heads", "heads, multihead, cross"});
  refused("attn run cross --input x.csv --context x.csv --rope", kUsage, {"--rope", "causal, heads, multihead"});
  refused("attn run multihead --input x.csv --d-out 4 --rope-theta 5", kUsage, {"--rope with --rope-theta"});
  refused("attn run simple --input x.csv --seed 1", kUsage, {"--seed", "simple"});
  refused("attn run simple --input x.csv --save-weights w.safetensors", kUsage, {"--save-weights"});
  refused("attn run self-v2 --input x.csv --no-mask", kUsage, {"--no-mask", "causal"});
  refused("attn run causal --input x.csv --no-out-proj", kUsage, {"--no-out-proj", "multihead, cross"});
  refused("attn run causal --input x.csv --context x.csv", kUsage, {"--context", "modules with it: cross"});
  refused("attn run cross --input x.csv", kUsage, {"--context"});
}

TEST_F(BadInput, Inputs) {
  write("empty.npy", "");
  refused("attn run simple --input missing.npy --output z.npy", kData, {"missing.npy"});
  refused("attn run simple --input folder --output z.npy", kData, {"folder"});
  refused("attn run simple --input empty.npy --output z.npy", kData, {"empty.npy"});
  refused("attn run simple --input words.txt --output z.npy", kData, {"words.txt"});
  refused("attn run simple --input - --output z.npy </dev/null", kData, {"standard input"});
  refused("printf '1,2\\n3\\n' | attn run simple --input - --output z.npy", kData, {"2 columns", "line 2"});
  refused("attn run cross --input - --context - < x.csv", kUsage, {"standard input"});
  refused("attn info missing.npy", kData, {"missing.npy"});
}

TEST_F(BadInput, TruncatedAndLyingFiles) {
  const std::string npy = read(path("batch.npy"));
  write("cut.npy", npy.substr(0, npy.size() - 1));
  write("long.npy", npy + "x");
  write("header.npy", npy.substr(0, 20));
  io::NamedTensors one;
  one.tensors.emplace_back("x", Tensor::ones({6, 3}));
  io::save_safetensors(path("ok.safetensors"), one);
  const std::string good = read(path("ok.safetensors"));
  write("cut.safetensors", good.substr(0, good.size() - 4));
  write("lying.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x00", 8) + good.substr(8));
  std::string shape = good;
  shape.replace(shape.find("[6,3]"), 5, "[9,3]");
  write("shape.safetensors", shape);
  for (const char* file :
       {"cut.npy", "long.npy", "header.npy", "cut.safetensors", "lying.safetensors", "shape.safetensors"}) {
    refused(std::string("attn run simple --output z.npy --input ") + file, kData, {file});
    refused(std::string("attn info ") + file, kData, {file});
  }
}

TEST_F(BadInput, Shapes) {
  io::save_npy(path("vector.npy"), Tensor::ones({6}));
  io::save_npy(path("four.npy"), Tensor::ones({1, 1, 6, 3}));
  io::save_npy(path("wide.npy"), Tensor::ones({6, 4}));
  refused("attn run simple --input vector.npy --output z.npy", kData, {"(6,)", "(tokens, d_in)"});
  refused("attn run causal --input four.npy --output z.npy", kData, {"(1, 1, 6, 3)"});
  refused("attn run cross --input x.csv --context wide.npy --output z.npy", kData, {"(6, 4)"});
  refused("attn run causal --input x.csv --context-length 5 --output z.npy", kData, {"context_length", "6"});
  io::save_npy(path("no_tokens.npy"), Tensor::zeros({0, 3}));
  io::save_npy(path("no_columns.npy"), Tensor::zeros({4, 0}));
  refused("attn explain causal --input no_tokens.npy", kData, {"(0, 3)"});
  refused("attn run causal --input no_columns.npy --output z.npy", kData, {"(4, 0)"});
  refused("attn run causal --input batch.npy --output z.csv", kUsage, {".csv"});
  refused("attn sdpa --q x.csv --k wide.npy --v x.csv --output z.npy", kData, {"(1, 1, 6, 4)"});
  refused("attn sdpa --q x.csv --k batch.npy --v x.csv --output z.npy", kData, {"one rank"});
  io::save_npy(path("mask.npy"), Tensor::ones({6, 6}, DType::i64));
  refused("attn sdpa --q x.csv --k x.csv --v x.csv --mask mask.npy", kData, {"--mask", "bool", "int64"});
  refused("attn sdpa --q x.csv --k x.csv --v x.csv --mask wide.npy", kData, {"(6, 4)"});
}

TEST_F(BadInput, TokensAndTensorNames) {
  write("five.txt", "a\nb\nc\nd\ne\n");
  refused("attn run simple --input x.csv --tokens five.txt", kData, {"6 lines", "5 in five.txt"});
  refused("attn run simple --input x.csv --tokens missing.txt", kData, {"missing.txt"});
  io::NamedTensors two;
  two.tensors = {{"first", Tensor::ones({2, 2})}, {"second", Tensor::ones({2, 2})}};
  io::save_npz(path("two.npz"), two);
  refused("attn run simple --input two.npz", kUsage, {"first", "second"});
  refused("attn run simple --input two.npz --tensor third", kUsage, {"third", "first"});
}

// A flag names one of a file's several tensors; without it the error says how.
TEST_F(BadInput, OneOfSeveralTensors) {
  const Tensor x = io::load_tensor(path("x.csv"));
  io::save_safetensors(path("two.safetensors"), {.tensors = {{"a", x}, {"b", x.slice(0, 0, 4)}}});
  const std::string cross = "attn run cross --d-out 2 --input x.csv --context two.safetensors ";
  const Ran four = run(cross + "--context-tensor b --json");
  EXPECT_EQ(json::parse(four.out)["shapes"]["context"], json({4, 3}));
  refused(cross, kUsage, {"found \"a\", \"b\"; choose one by --context-tensor NAME"});
  refused(cross + "--context-tensor c", kUsage, {"a tensor named \"c\"", "found \"a\", \"b\"\n"});
  refused("attn run causal --input two.safetensors", kUsage, {"found \"a\", \"b\"; choose one by --tensor NAME"});
  refused("attn run causal --context-tensor b", kUsage, {"--context"});
  refused("attn run cross --d-out 2 --input x.csv --context ones:2,3 --context-tensor b", kUsage,
          {"[--context-tensor] expected a file of several tensors at --context"});
  const std::string alone = "save one alone: attn draw FILE --tensor NAME --output one.npy";
  refused("attn sdpa --q two.safetensors --k x.csv --v x.csv", kUsage, {"found \"a\", \"b\"", alone});
  refused("attn sdpa --q x.csv --k x.csv --v x.csv --mask two.safetensors", kUsage, {"found \"a\", \"b\"", alone});
  out_of("attn draw two.safetensors --tensor a --output one.npy");
  EXPECT_EQ(difference(io::load_tensor(path("one.npy")), x), 0);
}

TEST_F(BadInput, Weights) {
  const std::string command = "attn run causal --input x.csv --d-out 2 --output z.npy --weights ";
  refused(command + "missing.safetensors", kData, {"missing.safetensors"});
  refused(command + "w.safetensors", kData, {"w.safetensors"});
  io::NamedTensors weights;
  for (const char* name : {"W_query.weight", "W_key.weight"}) weights.tensors.emplace_back(name, Tensor::ones({2, 3}));
  io::save_safetensors(path("less.safetensors"), weights);
  refused(command + "less.safetensors", kData, {"W_value.weight"});
  weights.tensors.emplace_back("W_value.weight", Tensor::ones({2, 4}));
  io::save_safetensors(path("shape.safetensors"), weights);
  refused(command + "shape.safetensors", kData, {"W_value.weight", "(2, 3)", "(2, 4)"});
  weights.tensors.back().second = Tensor::ones({2, 3});
  weights.tensors.emplace_back("W_query.bias", Tensor::ones({2}));
  io::save_safetensors(path("more.safetensors"), weights);
  refused(command + "more.safetensors", kData, {"W_query.bias"});
}

TEST_F(BadInput, Outputs) {
  const std::string command = "attn run causal --input x.csv --d-out 2 ";
  refused(command + "--output nowhere/z.npy", kData, {"--output", "nowhere"});
  refused(command + "--output folder", kUsage, {"--output", ".npy"});
  refused(command + "--output x.csv/z.npy", kData, {"--output"});
  refused(command + "--output z.txt", kUsage, {"z.txt", ".safetensors"});
  refused(command + "--save-weights w.npy", kUsage, {"--save-weights", ".safetensors"});
  refused(command + "--output z.npy --save-weights nowhere/w.safetensors", kData, {"--save-weights"});
  refused(command + "--save-weights w.safetensors --save-steps w.safetensors", kUsage, {"same"});
  std::filesystem::create_directory(path("folder.npy"));
  refused(command + "--output folder.npy", kData, {"a folder"});
}

TEST_F(BadInput, OutputsAreRefusedBeforeInputsAreRead) {
  refused("attn run causal --input missing.npy --output nowhere/z.npy", kData, {"--output"});
}

TEST_F(BadInput, TooMuchForTheMachine) {
  refused("attn run causal --input x.csv --d-out 1000000000000 --output z.npy", kUsage, {"GB", "--d-out"});
  refused("attn run heads --input x.csv --heads 1000000000000 --output z.npy", kUsage, {"GB", "--heads"});
  io::save_npy(path("long.npy"), Tensor::zeros({4'000'000, 1}));
  refused("attn run causal --input long.npy --save-steps s.safetensors", kUsage, {"GB", "shorten"});
  refused("attn sdpa --q long.npy --k long.npy --v long.npy --save-weights w.npy", kUsage, {"GB", "shorten"});
}

// Names of files and tensors, words, metadata: whoever has written them must not drive the terminal.
TEST_F(BadInput, NothingFromFilesDrivesTheTerminal) {
  const std::vector<std::string> evil{"\x1b[31m", "\u202e", "\u009b31m", "\u2066", "\x7f"};
  std::string name = "w";
  for (const std::string& text : evil) name += text;
  const Tensor x = io::load_tensor(path("x.csv"));
  io::NamedTensors file;
  const std::string in_zip = "w\u202e\u2066";  // a zip's names have no control characters
  file.tensors = {{in_zip, x}, {"b" + in_zip, x}};
  io::save_npz(path("evil.npz"), file);
  file.tensors = {{name, x}, {"b" + name, x}};
  file.metadata = {{"module", name}, {"tokens", name + "\nb\nc\nd\ne\nf"}, {name, name}};
  io::save_safetensors(path("evil.safetensors"), file);
  file.tensors = {{name + ".weights", Tensor::full({6, 6}, 1.0 / 6)}};
  io::save_safetensors(path("steps.safetensors"), file);
  io::save_npy(path(name + ".npy"), x);
  write("words", name + "\n\xff\x9b[31m\nc\nd\ne\nf\n");
  for (const std::string& line :
       std::vector<std::string>{"attn info evil.npz",
                                "attn info evil.safetensors",
                                "attn info evil.npz --json",
                                "attn info evil.safetensors --json",
                                "attn info w*.npy",
                                "attn info w*.npy --json",
                                "attn run simple --input w*.npy",
                                "attn run simple --input w*.npy --output z$(ls w*.npy)",
                                "attn run simple --input w*.npy --json",
                                "attn run simple --input evil.npz",
                                "attn run simple --input evil.npz --tensor \"$(ls w*.npy)\"",
                                "attn run simple --input x.csv --tokens words",
                                "attn run simple --input x.csv --tokens words --json",
                                "attn run causal --input x.csv --weights evil.npz",
                                "attn run causal --input x.csv --weights evil.safetensors",
                                "attn explain simple --input x.csv --tokens words",
                                "attn show simple --input x.csv --tokens words",
                                "attn show steps.safetensors --ascii",
                                "attn show steps.safetensors --json",
                                "attn show evil.safetensors",
                                "attn plot evil.safetensors --output p.svg",
                                "attn sdpa --q w*.npy --k w*.npy --v w*.npy --output z$(ls w*.npy)",
                                "attn check $(ls w*.npy)",
                                "attn bench --list w*.npy",
                                "attn bench --filter w*.npy",
                                "attn generate --model w*.npy --prompt w*.npy",
                                "attn train --text w*.npy --out z$(ls w*.npy)",
                                "attn report --model evil.safetensors --text a",
                                "attn w*.npy"}) {
    const Ran ran = run(line);
    for (const std::string& text : evil) {
      EXPECT_EQ((ran.out + ran.err).find(text), std::string::npos) << line << "\n" << ran.out << ran.err;
    }
    EXPECT_EQ((ran.out + ran.err).find('\xff'), std::string::npos) << line;
    EXPECT_NE(ran.status, 134) << line;
  }
}

TEST_F(BadInput, OutOfMemorySaysForWhat) {
#if defined(ATTN_SANITIZED)
  GTEST_SKIP() << "a sanitizer needs all addresses";
#endif
  io::save_npy(path("long.npy"), Tensor::zeros({20'000, 1}));
  io::save_npy(path("wide.npy"), Tensor::zeros({1, 20'000}));
  const std::string limit = "ulimit -v 1000000; ";
  refused(limit + "attn run simple --input long.npy --output z.npy", kData,
          {"1.6 GB (1600000000 bytes) for a tensor (20000, 20000) of float32", "fewer tokens"});
  refused(limit + "attn run self-v2 --input wide.npy --d-out 20000 --output z.npy", kData,
          {"1600000000 bytes", "(20000, 20000)", "smaller sizes"});
  write("huge.npy", "");
  std::filesystem::resize_file(path("huge.npy"), 3'000'000'000);
  const Ran ran = run(limit + "attn info huge.npy");
  EXPECT_EQ(ran.status, kData);
  EXPECT_THAT(ran.err, HasSubstr("3 GB (3000000001 bytes) for a file's bytes"));
}

TEST_F(BadInput, FullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  for (const char* line : {"attn demo", "attn --help", "attn info", "attn --version", "attn explain simple",
                           "attn run simple --input x.csv", "attn run simple --input x.csv --output -"}) {
    const Ran ran = run(std::string(line) + " > /dev/full");
    EXPECT_EQ(ran.status, kData) << line;
    EXPECT_THAT(ran.err, StartsWith("attn: error: ")) << line;
  }
}

}  // namespace
}  // namespace attn::test
