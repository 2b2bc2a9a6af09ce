// attn generate on small models made here.
#include "attn/generate.hpp"

#include "attn/pretrained.hpp"
#include "attn/tokenizer.hpp"
#include "command/command.hpp"

namespace attn::test {
namespace {

const std::filesystem::path kModels = kTests / "lm/data";

// Returns the tokens that follow one prompt.
std::vector<std::int64_t> written(LanguageModel& model, const std::vector<std::int64_t>& prompt,
                                  const GenerateOptions& options, std::uint64_t seed) {
  const std::vector<std::vector<std::int64_t>> prompts{prompt};
  return generate(model, prompts, options, seed)[0].ids;
}

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
    save_language_model(folder() / "m.safetensors", *model_);
  }

  std::string expected(const std::string& prompt, const GenerateOptions& options, std::uint64_t seed) {
    const ByteTokenizer bytes;
    return bytes.decode(written(*model_, bytes.encode(prompt), options, seed));
  }

  // Returns a text as the command prints it, also where its bytes are no UTF-8.
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
  for (const char* wrong : {"--model m.safetensors", "--model m.safetensors --text 'seventeen letters'",
                            "causal --model m.safetensors --text A"}) {
    EXPECT_NE(run("attn report " + std::string(wrong) + " --output wrong.html").status, 0) << wrong;
    EXPECT_FALSE(std::filesystem::exists(folder() / "wrong.html")) << wrong;
  }
}

TEST_F(Generate, TellsInJson) {
  const json told = json::parse(out_of("attn generate --model m.safetensors --prompt A --tokens 30 --seed 5 --json"));
  const std::string text = expected("A", {.tokens = 30}, 5);
  const auto ids = ByteTokenizer().encode(text);
  EXPECT_EQ(told["ids"].get<std::vector<std::int64_t>>(), ids);
  EXPECT_EQ(told["prompt_ids"].get<std::vector<std::int64_t>>(), std::vector<std::int64_t>{'A'});
  EXPECT_EQ(told["finish"], "length");
  EXPECT_EQ(told["seed"], 5);
  EXPECT_GT(told["seconds"].get<double>(), 0);
}

TEST_F(Generate, ReadsAFolderWithATokenizer) {
  const std::filesystem::path data = kTests / "text/data";
  Generator rng(4);
  GPT model({.vocab_size = 513, .context_length = 16, .layers = 1, .heads = 2, .width = 16}, rng);
  std::filesystem::create_directory(folder() / "hub");
  save_language_model(folder() / "hub", model);
  const Ran refused = run("attn generate --model hub --prompt x");
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("513"), std::string::npos) << refused.err;
  for (const char* file : {"vocab.json", "merges.txt"}) std::filesystem::copy(data / file, folder() / "hub" / file);
  const auto tokenizer = BPETokenizer::load(data);
  const auto ids = written(model, tokenizer.encode("Your journey"), {.tokens = 20, .stops = {512}}, 123);
  const std::string wanted = characters("Your journey" + tokenizer.decode(ids)) + "\n";
  EXPECT_EQ(out_of("attn generate --model hub --prompt 'Your journey' --tokens 20"), wanted);
  EXPECT_EQ(out_of("attn generate --model hub/model.safetensors --tokenizer hub --prompt 'Your journey' --tokens 20"),
            wanted);
}

TEST_F(Generate, KeepsWeightsInBfloat16) {
  store_matrices(*model_, DType::bf16);
  for (const char* dtype : {"bfloat16", "bf16"}) {
    EXPECT_EQ(out_of("attn generate --model m.safetensors --prompt A --tokens 20 --weights " + std::string(dtype)),
              characters("A" + expected("A", {.tokens = 20}, 123)) + "\n");
  }
}

TEST_F(Generate, KeepsWeightsInEightBits) {
  store_matrices(*model_, DType::i8);
  EXPECT_EQ(out_of("attn generate --model m.safetensors --prompt A --tokens 20 --weights int8"),
            characters("A" + expected("A", {.tokens = 20}, 123)) + "\n");
}

TEST_F(Generate, KeepsTheWeightsOfAGgufFile) {
  const std::string line = "attn generate --json --ids 1,2 --tokens 2 --model ";
  const std::string gguf = line + (kModels / "gguf/llama.gguf").string();
  EXPECT_EQ(json::parse(out_of(gguf))["weights"], "file");
  EXPECT_EQ(json::parse(out_of(gguf + " --precision medium"))["weights"], "file");
  EXPECT_EQ(json::parse(out_of(line + (kModels / "llama").string()))["weights"], "float32");
}

TEST_F(Generate, TakesAPrecisionAndTheCachesDType) {
  *model_ = load_gpt(folder() / "m.safetensors", Generator(0), Precision::medium);
  store_matrices(*model_, DType::i8);
  const std::string flags = "attn generate --model m.safetensors --prompt 'A text' --tokens 9 --weights i8 ";
  EXPECT_EQ(out_of(flags + "--precision medium --cache f16"),
            characters("A text" + expected("A text", {.tokens = 9, .cache = DType::f16}, 123)) + "\n");
  const json told = json::parse(out_of(flags + "--precision medium --cache i8 --json"));
  EXPECT_EQ(told["weights"], "int8");
  EXPECT_EQ(told["cache"], "int8");
  EXPECT_EQ(told["precision"], "medium");
  EXPECT_EQ(run(flags + "--precision low").status, 2);
  EXPECT_EQ(run(flags + "--cache f64").status, 2);
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

TEST_F(Generate, SaysWhatStandsInAModelsPlace) {
  const auto error = [&](const std::string& line) {
    const Ran ran = run(line);
    EXPECT_EQ(ran.status, 3) << line;
    EXPECT_EQ(ran.out, "") << line;
    return ran.err;
  };
  write("notes.md", "# no model");
  std::filesystem::create_directories(path("empty"));
  std::filesystem::create_directories(path("docs"));
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) write(std::string("docs/") + name, "");
  const std::string expected = "a folder with config.json, a GGUF file, or what attn train wrote; found ";
  for (const std::string line : {"attn generate --ids 1 --model ", "attn report --text A --model "}) {
    EXPECT_THAT(error(line + "nowhere"), HasSubstr("a model at nowhere: " + expected + "nothing there"));
    EXPECT_THAT(error(line + "notes.md"), HasSubstr("a model at notes.md: " + expected + "a file of another kind"));
    EXPECT_THAT(error(line + "empty"), HasSubstr(expected + "an empty folder"));
    EXPECT_THAT(error(line + "docs"), HasSubstr(expected + "a folder of a, b, c, d and 2 more"));
  }
  EXPECT_THAT(error("attn info docs"), HasSubstr("[attn info] expected a model at docs: " + expected + "a folder of"));
}

// Small random models of other families, whose greedy tokens transformers computed.
TEST_F(Generate, WritesIdsWithReleasedModels) {
  for (const char* family : {"llama", "gemma3_text"}) {
    const io::NamedTensors golden = io::load(kModels / family / "golden.safetensors");
    const auto joined = [&](const std::string& name, char between) {
      std::string text;
      const Tensor ids = *golden.find(name);
      for (std::int64_t i = 0; i < ids.numel(); ++i) {
        if (i > 0) text += between;
        text += std::to_string(ids.data<std::int64_t>()[i]);
      }
      return text;
    };
    const std::string generate = "attn generate --temperature 0 --tokens 40 --model " + (kModels / family).string();
    EXPECT_EQ(out_of(generate + " --ids " + joined("prompt.0", ',')), joined("greedy.0", ' ') + "\n");
    EXPECT_EQ(out_of(generate + " --ids " + joined("prompt.0", ',') + " " + joined("prompt.1", ',')),
              joined("greedy.0", ' ') + "\n" + joined("greedy.1", ' ') + "\n");
    const json told = json::parse(out_of(generate + " --json --ids " + joined("prompt.0", ',') + " 1,2"));
    ASSERT_EQ(told["texts"].size(), 2u);
    EXPECT_EQ(told["texts"][1]["prompt_ids"], json({1, 2}));
    EXPECT_EQ(told["texts"][0]["finish"], "length");
    const auto ids = told["texts"][0]["ids"].get<std::vector<std::int64_t>>();
    const auto at = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), ids[5]) - ids.begin());
    const json stopped = json::parse(
        out_of(generate + " --json --stop " + std::to_string(ids[5]) + " --ids " + joined("prompt.0", ',')));
    EXPECT_EQ(stopped["finish"], "stop");
    EXPECT_EQ(stopped["ids"].size(), at);
  }
  const std::string llama = "attn generate --model " + (kModels / "llama").string();
  for (const char* wrong : {" --ids 1,", " --ids x", " --ids 1,-2", " --ids 61", " --ids 1 --tokens 64",
                            " --ids 1 --prompt A", " --ids 1 --chat", " --ids 1 --stop x", " --ids 1 --stop 61",
                            " --ids 1 --stop 3,-1", " --ids 1 --min-p 2", " --ids 1 --repetition-penalty 0"}) {
    const Ran ran = run(llama + wrong);
    EXPECT_EQ(ran.status, 2) << wrong << ran.err;
    EXPECT_EQ(ran.out, "") << wrong;
  }
}

// Returns the first `bytes` that `command` prints through a pipe, and then closes the pipe. The command must not end
// before; `status` tells how it ends.
std::string beginning_of(const std::vector<std::string>& command, std::size_t bytes, int& status) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);  // where nothing comes
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]), close(ends[1]);
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(ATTN_COMMAND, argv.data());
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char c = 0;
  while (text.size() < bytes && ::read(ends[0], &c, 1) == 1) text.push_back(c);
  EXPECT_EQ(waitpid(child, &status, WNOHANG), 0) << "it has ended";
  close(ends[0]);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return text;
}

// Tokens go through a pipe as they come, of a text that has hundreds of millions.
TEST_F(Generate, StreamsThroughAPipe) {
  std::filesystem::copy(kModels / "mistral", path("endless"));
  std::string config = read(path("endless/config.json"));
  const std::string context = "\"max_position_embeddings\": 64";
  config.replace(config.find(context), context.size(), "\"max_position_embeddings\": 1000000000");
  write("endless/config.json", config);
  const io::NamedTensors golden = io::load(kModels / "mistral/golden.safetensors");
  std::string wanted;
  for (int i = 0; i < 5; ++i) wanted += std::to_string(golden.find("greedy.2")->data<std::int64_t>()[i]) + " ";
  const Tensor prompt = *golden.find("prompt.2");
  ASSERT_EQ(prompt.numel(), 1);
  int status = 0;
  const std::string ids =
      beginning_of({"attn", "generate", "--model", path("endless"), "--ids",
                    std::to_string(prompt.data<std::int64_t>()[0]), "--temperature", "0", "--tokens", "900000000"},
                   wanted.size(), status);
  EXPECT_EQ(ids, wanted);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  const std::string text = beginning_of({"attn", "generate", "--model", path("m.safetensors"), "--prompt", "Your",
                                         "--tokens", "900000000", "--seed", "8"},
                                        8, status);
  EXPECT_EQ(text.substr(0, 4), "Your");
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
}

// A released model's folder with a tokenizer of four tokens.
TEST_F(Generate, TextOfAReleasedModel) {
  std::filesystem::copy(kModels / "qwen3", path("model"));
  const Ran without = run("attn generate --model model --prompt ab");
  EXPECT_EQ(without.status, 3);
  EXPECT_THAT(without.err, HasSubstr("a tokenizer.json"));
  const json tokenizer = json::parse(R"({"model": {"vocab": {"z": 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]},
      "added_tokens": [{"id": 4, "content": "<|im_start|>", "special": true}], "decoder": {"type": "Fuse"}})");
  write("model/tokenizer.json", tokenizer.dump());
  const std::string generate = "attn generate --model model --tokens 5 --temperature 0 --json ";
  const json text = json::parse(out_of(generate + "--prompt aab")), ids = json::parse(out_of(generate + "--ids 1,3"));
  EXPECT_EQ(text["prompt_ids"], json({1, 3}));
  EXPECT_EQ(text["ids"], ids["ids"]);
  EXPECT_GT(text["tokens_per_second"], 0.0);
  EXPECT_LE(text["first_token_seconds"], text["seconds"]);
  const Ran refused = run("attn generate --model model --prompt aab --tokens 9000");  // longer than its context
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(run("attn generate --model model --prompt a --chat").status, 3);
  write("model/tokenizer_config.json",
        R"({"chat_template": "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"})");
  EXPECT_EQ(json::parse(out_of(generate + "--prompt ab --chat --system a"))["prompt_ids"], json({4, 1, 4, 3}));
  write("messages.json", R"([{"role": "user", "content": "ab"}, {"role": "tool", "content": "b"}])");
  const json answer = json::parse(out_of(generate + "--messages messages.json"));
  EXPECT_EQ(answer["prompt"], "<|im_start|>ab<|im_start|>b");
  EXPECT_EQ(answer["prompt_ids"], json({4, 3, 4, 2}));
  EXPECT_EQ(run("attn generate --model model --messages messages.json --prompt a").status, 2);
  EXPECT_EQ(run("attn generate --model model --messages none.json").status, 3);
  json wide = tokenizer;
  for (int id = 4; id < 61; ++id) wide["model"]["vocab"]["t" + std::to_string(id)] = id;
  wide["added_tokens"][0]["id"] = 61;  // one more than the model has
  write("model/tokenizer.json", wide.dump());
  EXPECT_THAT(run("attn generate --model model --prompt a").err, HasSubstr("a model of"));
}

TEST_F(Generate, WritesSeveralTexts) {
  const GenerateOptions options{.tokens = 9};
  EXPECT_EQ(
      out_of("attn generate --model m.safetensors --prompt A 'B c' --tokens 9 --seed 4"),
      characters("A" + expected("A", options, 4)) + "\n" + characters("B c" + expected("B c", options, 4)) + "\n");
}

TEST_F(Generate, InfoTellsOfAModel) {
  const json qwen = json::parse(out_of("attn info --json " + (kModels / "qwen3").string()))["model"];
  EXPECT_EQ(qwen["family"], "qwen3");
  EXPECT_EQ(qwen["parameters"], 6280);  // as transformers counts them
  EXPECT_EQ(qwen["kv_heads"], 2);
  const json gguf = json::parse(out_of("attn info --json " + (kModels / "gguf/gemma3.gguf").string()));
  EXPECT_EQ(gguf["model"]["family"], "gemma3_text");
  EXPECT_EQ(gguf["tensors"][0]["name"], "token_embd.weight");
  EXPECT_NE(out_of("attn info " + (kModels / "llama").string()).find("parameters: 6496"), std::string::npos);
  std::filesystem::create_directory(folder() / "gpt");
  save_language_model(folder() / "gpt", *model_);
  EXPECT_NE(out_of("attn info gpt").find("family: gpt2\n"), std::string::npos);
  EXPECT_NE(out_of("attn info gpt").find("\nwte.weight "), std::string::npos);
}

TEST_F(Generate, HelpShowsExamples) {
  EXPECT_NE(out_of("attn generate --help").find("attn generate --model"), std::string::npos);
}

}  // namespace
}  // namespace attn::test
