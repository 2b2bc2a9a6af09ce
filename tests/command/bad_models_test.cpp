// Released models that are not what they say, and texts that a model cannot take: the command says so, prints nothing
// else, writes nothing and ends with 2 or 3.
#include <functional>

#include "command/command.hpp"
#include "lm/gguf_bytes.hpp"

namespace attn::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer =
    R"({"model": {"vocab": {"a": 1, "b": 2, "ab": 3}, "merges": ["a b"]}, "decoder": {"type": "Fuse"}})";

class BadModels : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    fs::create_directory(path("tokenizer"));
    write("tokenizer/tokenizer.json", kTokenizer);
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 3 == 0 ? "ab" : "ba";
    write("text.txt", text);
  }

  static fs::path models() { return kTests / "lm/data"; }

  void expect_refused(const std::string& line, const std::string& reason, int status = 3) const {
    refused(line, status, {reason, "expected "});
  }

  // Expects each verb that loads a model to refuse this one.
  void expect_no_model(const std::string& model, const std::string& reason) const {
    expect_refused("attn generate --ids 1,2 --model " + model, reason);
    expect_refused("attn generate --json --ids 1,2 3 --weights int8 --model " + model, reason);
    expect_refused("attn report --text ab --tokenizer tokenizer --output page.html --model " + model, reason);
    expect_refused("attn train --text text.txt --context 8 --steps 2 --out tuned --tokenizer tokenizer --from " + model,
                   reason);
  }

  // qwen3 has four shards and an index; the others one file.
  void expect_no_folder(const char* family, const std::string& reason, const std::function<void()>& change) const {
    SCOPED_TRACE(reason);
    fs::remove_all(path("model"));
    fs::copy(models() / family, path("model"));
    change();
    expect_no_model("model", reason);
  }

  void expect_no_gguf(const std::string& reason, const std::string& bytes) const {
    SCOPED_TRACE(reason);
    write("model.gguf", bytes);
    expect_no_model("model.gguf", reason);
    expect_refused("attn info model.gguf", reason);
  }
};

TEST_F(BadModels, Folders) {
  const std::string shard = "model/model-00002-of-00004.safetensors", one = "model/model.safetensors";
  expect_no_folder("qwen3", "cut off", [&] { fs::resize_file(path(shard), fs::file_size(path(shard)) - 4); });
  expect_no_folder("qwen3", "8 bytes", [&] { fs::resize_file(path(shard), 5); });
  expect_no_folder("qwen3", "model-00002-of-00004", [&] { fs::remove(path(shard)); });
  expect_no_folder("qwen3", "model.safetensors", [&] { fs::remove(path("model/model.safetensors.index.json")); });
  expect_no_folder("qwen3", "as the index says", [&] {
    write("model/model.safetensors.index.json",
          replaced(read(path("model/model.safetensors.index.json")), "model.norm.weight", "model.norm.other"));
  });
  // Headers of the same length, which say something else.
  expect_no_folder("llama", "(20, 16)", [&] { write(one, replaced(read(path(one)), "[20,16]", "[16,20]")); });
  expect_no_folder("llama", "F8_E4M3", [&] {
    write(one, replaced(read(path(one)), R"("dtype":"F32","shape":[20])", R"("dtype":"F8_E4M3","shape":[8])"));
  });
  expect_no_folder("llama", "cut off", [&] { fs::resize_file(path(one), fs::file_size(path(one)) - 1); });
  expect_no_folder("llama", "mamba", [&] {
    write("model/config.json", replaced(read(path("model/config.json")), R"("llama")", R"("mamba")"));
  });
}

TEST_F(BadModels, FilesThatAreNoModelByThemselves) {
  out_of(
      "attn train --text text.txt --layers 1 --heads 1 --width 8 --context 8 --batch 2 --steps 2 --out m.safetensors");
  expect_no_model("m.training.safetensors", "the model is the file without .training");
  fs::copy(models() / "llama/model.safetensors", path("alone.safetensors"));
  expect_no_model("alone.safetensors", "name the folder of the model");
  expect_refused("attn embed a --model text.txt", "an encoder at text.txt: a folder with config.json");
  expect_refused("attn embed a --model nowhere", "nothing there");
}

// A model is sound whatever is glued to its file, and attn info tells that something is.
TEST_F(BadModels, BytesBehindAGgufFileAreTold) {
  const std::string bytes = read(models() / "gguf/llama.gguf");
  for (const bool glued : {false, true}) {
    write("model.gguf", bytes + (glued ? std::string(77, 'x') : ""));
    const std::string told = "bytes behind the last tensor, which are not read: ";
    EXPECT_EQ(out_of("attn info model.gguf").find(told) != std::string::npos, glued);
    EXPECT_EQ(nlohmann::json::parse(out_of("attn info model.gguf --json")).contains("bytes_behind_tensors"), glued);
  }
}

TEST_F(BadModels, GgufFilesThatLie) {
  const std::string bytes = read(models() / "gguf/llama.gguf");
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
  expect_no_gguf("cut off", bytes.substr(0, bytes.size() - 100));
  expect_no_gguf("tensors than", std::string(bytes).replace(8, 8, huge));
  expect_no_gguf("values than", std::string(bytes).replace(16, 8, huge));
  expect_no_gguf("characters than", std::string(bytes).replace(24, 8, huge));  // of the first key
  const GgufBytes honest(bytes);
  const auto with = [&](const std::function<void(GgufBytes&)>& change) {
    GgufBytes file = honest;
    change(file);
    return file.str();
  };
  std::string list = with([](GgufBytes& file) { file.metadata["list"] = std::vector<std::int64_t>{1, 2, 3}; });
  list.replace(list.find("list") + 4 + 4 + 4, 8, huge);  // after its kind and that of its elements
  expect_no_gguf("elements than", list);
  expect_no_gguf("inside the", with([](GgufBytes& file) { file.tensors[0].sizes[1] = 1 << 30; }));
  expect_no_gguf("inside the", with([](GgufBytes& file) { file.tensors[0].begin = std::uint64_t{1} << 62; }));
  expect_no_gguf("type I64", with([](GgufBytes& file) { file.tensors[0].type = 27; }));
  write("model.gguf", with([](GgufBytes& file) { file.metadata["llama.attention.head_count"] = std::int64_t{0}; }));
  expect_no_model("model.gguf", "of 1 or more");  // attn info shows such a file as it is
}

TEST_F(BadModels, Tokenizers) {
  fs::copy(models() / "llama", path("model"));
  write("model/tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 1, "b": 2, "ab": 3}}, "decoder": {"type": "Fuse"}})");
  expect_refused("attn generate --prompt ab --model model", "merges");
  expect_refused("attn report --text ab --output page.html --model model", "merges");
  expect_refused("attn train --text text.txt --context 8 --steps 2 --out tuned --from model", "merges");
  GgufBytes file(read(models() / "gguf/llama.gguf"));
  file.metadata["tokenizer.ggml.model"] = std::string("gpt2");
  file.metadata["tokenizer.ggml.pre"] = std::string("gpt-2");
  file.metadata["tokenizer.ggml.tokens"] = std::vector<std::string>(61, "a");
  write("model.gguf", file.str());
  expect_refused("attn generate --prompt ab --model model.gguf", "tokenizer.ggml.merges");
  expect_refused("attn tokens --tokenizer model.gguf ab", "tokenizer.ggml.merges");
}

// The models of the tests take 64 tokens; one is told that it takes 600, which are read in pieces of 512.
TEST_F(BadModels, TextsBeyondTheContext) {
  fs::copy(models() / "llama", path("model"));
  write("model/tokenizer.json", kTokenizer);
  const auto ids = [](int count) {
    std::string text = "1";
    for (int i = 1; i < count; ++i) text += ",2";
    return text;
  };
  const std::string generate = "attn generate --model model ", context = "context_length = 64";
  expect_refused(generate + "--tokens 1 --ids " + ids(64), context, 2);
  expect_refused(generate + "--tokens 0 --ids " + ids(65), context, 2);
  expect_refused(generate + "--tokens 60 --ids 1,2 " + ids(5), context, 2);
  expect_refused(generate + "--json --tokens 1 --ids 1,2 " + ids(70) + " 3", context, 2);
  expect_refused(generate + "--tokens 2 --prompt " + std::string(80, 'a'), context, 2);
  expect_refused("attn report --model model --output page.html --text " + std::string(80, 'a'), "64", 2);
  expect_refused("attn train --text text.txt --context 65 --steps 2 --out tuned --from model", "64", 2);
  write("model/config.json", replaced(read(path("model/config.json")), R"("max_position_embeddings": 64)",
                                      R"("max_position_embeddings": 600)"));
  expect_refused(generate + "--tokens 1 --ids " + ids(1100), "context_length = 600", 2);
  expect_refused(generate + "--tokens 10 --ids " + ids(595) + " 1", "context_length = 600", 2);
  EXPECT_EQ(run(generate + "--tokens 5 --temperature 0 --ids " + ids(595)).status, 0);
}

}  // namespace
}  // namespace attn::test
