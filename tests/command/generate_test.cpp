// attn generate on small models made here.
#include "attn/generate.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "attn/checkpoint.hpp"
#include "attn/tokenizer.hpp"
#include "command/command.hpp"

namespace attn::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class Generate : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    Generator rng(3);
    model_ = std::make_unique<GPT>(
        GPTConfig{.vocab_size = 256, .context_length = 16, .layers = 2, .heads = 2, .width = 16}, rng);
    for (Parameter* p : model_->parameters()) {
      const Tensor noise = rng.randn(p->value.shape());
      for (std::int64_t i = 0; i < noise.numel(); ++i) p->value.data<float>()[i] += 0.3f * noise.data<float>()[i];
    }
    save_gpt(folder() / "m.safetensors", *model_);
  }

  std::string expected(const std::string& prompt, const GenerateOptions& options, std::uint64_t seed) {
    const ByteTokenizer bytes;
    Generator rng(seed);
    return bytes.decode(generate(*model_, bytes.encode(prompt), options, rng));
  }

  // As the command prints bytes that are no UTF-8.
  static std::string characters(const std::string& text) {
    Utf8Stream stream;
    std::string whole = stream.push(text);
    return whole + stream.finish();
  }

  std::unique_ptr<GPT> model_;
};

TEST_F(Generate, PrintsThePromptAndWhatFollows) {
  const GenerateOptions options{.tokens = 60, .sampling = {.temperature = 0.7, .top_k = 50, .top_p = 0.9}};
  EXPECT_EQ(out_of("attn generate --model m.safetensors --prompt 'Your é' --tokens 60 --temperature 0.7 --top-k 50 "
                   "--top-p 0.9 --seed 8"),
            characters("Your é" + expected("Your é", options, 8)) + "\n");
  EXPECT_EQ(out_of("attn generate --model m.safetensors --tokens 0"), "\n");
}

TEST_F(Generate, ReportShowsEveryLayersHeads) {
  out_of("attn report --model m.safetensors --text 'Your </script>' --output page.html");
  const std::string page = read(folder() / "page.html");
  for (const char* part : {"h.0.attn", "h.1.attn", "Your "}) EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("Your </script>")));
  for (const char* wrong : {"--model m.safetensors", "--model m.safetensors --text 'seventeen letters'", "--text A",
                            "causal --model m.safetensors --text A"}) {
    EXPECT_NE(run("attn report " + std::string(wrong) + " --output wrong.html").status, 0) << wrong;
    EXPECT_FALSE(std::filesystem::exists(folder() / "wrong.html")) << wrong;
  }
}

TEST_F(Generate, TellsInJson) {
  const Json json = Json::parse(out_of("attn generate --model m.safetensors --prompt A --tokens 30 --seed 5 --json"));
  const std::string text = expected("A", {.tokens = 30}, 5);
  const auto ids = ByteTokenizer().encode(text);
  EXPECT_EQ(json["ids"].get<std::vector<std::int64_t>>(), ids);
  EXPECT_EQ(json["prompt_ids"].get<std::vector<std::int64_t>>(), std::vector<std::int64_t>{'A'});
  EXPECT_EQ(json["finish"], "length");
  EXPECT_EQ(json["seed"], 5);
  EXPECT_GT(json["seconds"].get<double>(), 0);
}

TEST_F(Generate, ReadsAFolderWithATokenizer) {
  const std::filesystem::path data = std::filesystem::path(ATTN_TEST_DATA).parent_path().parent_path() / "text/data";
  Generator rng(4);
  GPT model({.vocab_size = 1025, .context_length = 16, .layers = 1, .heads = 2, .width = 16}, rng);
  std::filesystem::create_directory(folder() / "hub");
  save_gpt(folder() / "hub", model);
  const Ran refused = run("attn generate --model hub --prompt x");
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("1025"), std::string::npos) << refused.err;
  for (const char* file : {"vocab.json", "merges.txt"}) std::filesystem::copy(data / file, folder() / "hub" / file);
  const auto tokenizer = BPETokenizer::load(data);
  Generator draws(123);
  const auto ids = generate(model, tokenizer.encode("Your journey"), {.tokens = 20, .stop = 1024}, draws);
  const std::string wanted = characters("Your journey" + tokenizer.decode(ids)) + "\n";
  EXPECT_EQ(out_of("attn generate --model hub --prompt 'Your journey' --tokens 20"), wanted);
  EXPECT_EQ(out_of("attn generate --model hub/model.safetensors --tokenizer hub --prompt 'Your journey' --tokens 20"),
            wanted);
}

TEST_F(Generate, KeepsWeightsInBfloat16) {
  store_matrices(*model_, DType::bf16);
  EXPECT_EQ(out_of("attn generate --model m.safetensors --prompt A --tokens 20 --weights bfloat16"),
            characters("A" + expected("A", {.tokens = 20}, 123)) + "\n");
}

TEST_F(Generate, RefusesWithAReason) {
  const auto status = [&](const std::string& flags) {
    const Ran ran = run("attn generate " + flags);
    EXPECT_EQ(ran.err.rfind("attn: error: ", 0), 0u) << ran.err;
    EXPECT_EQ(ran.out, "");
    return ran.status;
  };
  write("bad.safetensors", "not one");
  EXPECT_EQ(status(""), 2);
  for (const char* wrong : {"--temperature -1", "--temperature nan", "--temperature inf", "--top-p 5", "--top-p 0",
                            "--top-p nan", "--top-k -3", "--tokens -1", "--top-p 5 --tokens 0"}) {
    EXPECT_EQ(status(std::string("--model m.safetensors --prompt 'A text' ") + wrong), 2) << wrong;
    EXPECT_EQ(status(std::string("--model nowhere.safetensors ") + wrong), 2) << wrong;
  }
  EXPECT_EQ(status("--model m.safetensors --weights int4"), 2);
  EXPECT_EQ(status("--model nowhere.safetensors"), 3);
  EXPECT_EQ(status("--model bad.safetensors"), 3);
  EXPECT_EQ(status("--model m.safetensors --tokenizer nowhere"), 3);
}

TEST_F(Generate, HelpShowsExamples) {
  EXPECT_NE(out_of("attn generate --help").find("attn generate --model"), std::string::npos);
}

}  // namespace
}  // namespace attn::test
