// attn tokens: a text's ids, and what a tokenizer is.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "command/command.hpp"

namespace attn::test {
namespace {

using testing::HasSubstr;

const std::string kFiles = ATTN_SOURCE "/tests/text/data/tokenizers/";

class Tokens : public Command {};

TEST_F(Tokens, OfATextAndBack) {
  EXPECT_EQ(out_of("attn tokens --tokenizer " + kFiles + "smollm.json '1é\x1b'"),
            " id  token\n 16  '1'\n288  'é'\n215  '\\u001b'\n3 tokens of 4 bytes\n");
  EXPECT_EQ(out_of("attn tokens --tokenizer " + kFiles + "smollm.json --decode 16,288"), "1é\n");
}

TEST_F(Tokens, WithAndWithoutTheBeginning) {
  const auto ids = [&](const std::string& flags) {
    const std::string printed = out_of("attn tokens --tokenizer " + kFiles + "llama3.json a --json " + flags);
    return nlohmann::json::parse(printed)["ids"].get<std::vector<int>>();
  };
  const auto with = ids(""), without = ids("--plain");
  ASSERT_EQ(with.size(), without.size() + 1);
  EXPECT_EQ(std::vector(with.begin() + 1, with.end()), without);
}

TEST_F(Tokens, OfAConversation) {
  std::filesystem::copy(kFiles + "smollm.json", path("tokenizer.json"));
  const auto chat = [&](const std::string& jinja) {
    std::ofstream(path("tokenizer_config.json"))
        << nlohmann::json{{"eos_token", "<|im_end|>"}, {"chat_template", jinja}};
    return run("attn tokens --tokenizer . --chat hi --system short --json");
  };
  const Ran known = chat("{{ '<|im_start|>' + role + '\\n' + text + '<|im_end|>' }}");
  EXPECT_EQ(nlohmann::json::parse(known.out)["text"],
            "<|im_start|>system\nshort<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(nlohmann::json::parse(known.out)["tokens"][0], "<|im_start|>");
  const Ran unknown = chat("{{ '[INST]' + text }}");
  EXPECT_EQ(unknown.status, 3);
  EXPECT_THAT(unknown.err, HasSubstr("[INST]"));
  EXPECT_THAT(out_of("attn tokens --tokenizer ."), HasSubstr("end of text    <|im_end|>"));
  EXPECT_THAT(out_of("attn tokens --tokenizer ."), HasSubstr("[INST]"));
}

TEST_F(Tokens, OfTheLinesOfAFile) {
  std::ofstream(path("lines")) << "\"1\\n\"\n[16, 215]\n\"\"\n";
  EXPECT_EQ(out_of("attn tokens --tokenizer " + kFiles + "smollm.json --lines lines"), "[16,198]\n\"1\\u001b\"\n[]\n");
  std::ofstream(path("bad")) << "{}\n";
  EXPECT_EQ(run("attn tokens --tokenizer " + kFiles + "smollm.json --lines bad").status, 3);
}

TEST_F(Tokens, WrongUsageAndFilesAreErrors) {
  EXPECT_EQ(run("attn tokens a").status, 2);
  EXPECT_EQ(run("attn tokens --tokenizer nosuch a").status, 3);
  EXPECT_EQ(run("attn tokens --tokenizer . a").status, 3);
  EXPECT_EQ(run("attn tokens --tokenizer " + kFiles + "smollm.json --decode 1,x").status, 2);
  EXPECT_EQ(run("attn tokens --tokenizer " + kFiles + "smollm.json --decode 99999").status, 2);
  EXPECT_EQ(run("attn tokens --tokenizer " + kFiles + "smollm.json --system a b").status, 2);
  EXPECT_EQ(run("attn tokens --tokenizer " + kFiles + "smollm.json --chat b").status, 3);
}

}  // namespace
}  // namespace attn::test
