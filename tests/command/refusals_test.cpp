// Flags that mean nothing, alone or beside one another, are refused by name, in words that say what is expected.
#include "command/command.hpp"

namespace attn::test {
namespace {

class Refusals : public Command {
 protected:
  // M, T and X in the words stand for a model, a tokenizer and an array.
  void expect(std::string words, const std::string& says) {
    const std::string source = ATTN_SOURCE;
    const std::pair<const char*, std::string> files[] = {{" M", " " + source + "/examples/data/licences.safetensors"},
                                                         {" T", " " + source + "/tests/text/data/tokenizers/gpt2.json"},
                                                         {" X", " " + source + "/examples/data/six-words.npy"}};
    for (const auto& [mark, path] : files) {
      const std::size_t at = (words + " ").find(mark + std::string(" "));
      if (at != std::string::npos) words.replace(at, 2, path);
    }
    const Ran ran = run("attn " + words);
    EXPECT_EQ(ran.status, 2) << words;
    EXPECT_THAT(ran.err, HasSubstr(says)) << words;
    EXPECT_EQ(ran.out, "") << words;
  }
};

TEST_F(Refusals, OfModels) {
  expect("generate --model M --ids 1 --stop-text a", "[--stop-text] expected --prompt");
  expect("generate --model M --prompt a --stop-text ''", "[--stop-text] expected a text; found an empty one");
  expect("generate --model M --top-k -1", "[--top-k] expected a number from 0 on; found -1");
  expect("generate --model M --temperature inf", "[--temperature] expected a finite number; found inf");
  expect("generate --model M --repetition-penalty inf", "[--repetition-penalty] expected a finite number; found inf");
  expect("generate --model M --top-p 5", "[--top-p] expected a number above 0 and at most 1; found 5");
  expect("generate --model M --ids a", "[--ids] expected token ids such as 1,2,3; found a");
  expect("experiment --model M --text a --next --without 1 --mean-of b", "[--mean-of] expected --by mean");
  expect("experiment --model M --text a --skip 1.1", "[--skip] expected layers, without heads; found 1.1");
  expect("report causal --title '' --output x.html", "[--title] expected a title; found an empty text");
  expect("report --model M --text a --item 2 --output x.html", "[--item] expected a number from 1 to 1; found 2");
  expect("report --model M --text a --layers 2 --layer 3 --output x.html", "[--layer] expected one of --layers 2");
  expect("show --model M --text a --layer 5", "[--layer] expected a number from 1 to 4; found 5");
  expect("tokens --tokenizer T --decode a", "[--decode] expected ids with commas between");
}

TEST_F(Refusals, OfModules) {
  expect("run simple --input X --seed 3", "expected flags that simple uses; found --seed; modules with it: self-v1");
  expect("run multihead --d-out 4 --input X --rope --rope-theta 0", "[--rope-theta] expected a number above 0");
  expect("plot --text a --output x.svg --dpi 100", "[--dpi] expected an --output that ends in .png; found x.svg");
  expect("sdpa --q randn:1,1,2,4 --k randn:1,1,2,4 --v randn:1,1,2,4 --scale x", "[--scale] expected a finite number");
}

// A shell gives an empty value for a variable that it does not know.
TEST_F(Refusals, OfEmptyValues) {
  for (const char* words : {"sdpa --q X --k X --v X --mask", "run causal --input", "report simple --output",
                            "train --text t.txt --out", "experiment --model M --text-file",
                            "generate --model M --messages", "bench --list", "draw X --output", "info"}) {
    expect(std::string(words) + " ''", "expected a value; found an empty text");
  }
}

TEST_F(Refusals, OfExperiments) {
  const std::string of = "experiment --model M --text abcd ";
  expect(of + "--weights 1.1=none 1.1=uniform", "[--weights] expected every head once; found 1.1 twice");
  for (const char* words : {"--without 1 --scale 1.2=3", "--keep-only 1.1 --scale 1.2=3", "--without 1.2,1.2",
                            "--without 1 --weights 1.2=none", "--skip 1 --without 1.2", "--skip 1,1:mlp",
                            "--skip 1:attention --scale 1.1=2", "--without 1 --step h.0.attn.weights:2=0.5",
                            "--weights 1.1=previous --step h.0.attn.scores:1=2"}) {
    expect(of + words, "[experiment] expected edits that all change something");
  }
  for (const char* words : {"--effects --tokens a a", "--attribution --tokens b b", "--next --tokens a a"}) {
    expect(of + words, "[--tokens] expected two tokens that differ; found one of them twice");
  }
  expect(of + "--patch-from abc --tokens a b", "[--patch-from] expected a text of 4 tokens; found 3");
  expect("experiment --model M", "[--text] expected a text that the model reads; found none");
  expect(of + "--effects --exact 2 --skip 1", "[--exact] expected all 12 heads beside a change");
  expect(of + "--next --other-text ab --hide 3",
         "[--hide] expected a token from 1 to 2, as 2, or behind a head or a layer");
  expect(of + "--next --other-text ab --without 1 --by text --from bcde", "[--by] expected texts of as many tokens");
  expect("experiment --model M --text-file - --without 1 --by mean --mean-of-file -",
         "[--mean-of-file] expected standard input (-) once; found it twice");
  expect("plot multihead --figure lines --colours grey --output x.svg", "flags that --figure lines uses");
}

TEST_F(Refusals, OfTraining) {
  std::ofstream(path("t.txt")) << std::string(400, 'a');
  std::ofstream(path("there.safetensors")) << "x";
  const std::string train = "train --text t.txt --steps 1 --out ";
  expect(train + "there.safetensors", "[--out] expected no model there yet");
  expect(train + "m.safetensors --validation 2", "[--validation] expected a part between 0 and 1; found 2");
  expect(train + "m.safetensors --beta2 2", "[--beta2] expected a number from 0 to below 1; found 2");
  expect(train + "m.safetensors --beta2 1", "[--beta2] expected a number from 0 to below 1; found 1");
  expect(train + "m.safetensors --weight-decay -1", "[--weight-decay] expected a number of at least 0; found -1");
  expect(train + "m.safetensors --context 8 --until 2", "[--until] expected a step up to 1, the last one; found 2");
  expect(train + "m.safetensors --dropout 2", "[--dropout] expected a number from 0 to 1; found 2");
  expect(train + "m.safetensors --ranks parts=2", "[--ranks] expected data=N, sequence=N or both");
  expect(train + "m.safetensors --scheme ring", "[--scheme] expected --ranks with sequence=2 or more");
}

}  // namespace
}  // namespace attn::test
