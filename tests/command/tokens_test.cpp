// attn tokens: a text's ids, and what a tokenizer is.
#include "command/command.hpp"

namespace attn::test {
namespace {

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
        << nlohmann::json{{"bos_token", "<|im_start|>"}, {"eos_token", "<|im_end|>"}, {"chat_template", jinja}};
    return run("attn tokens --tokenizer . --chat hi --system short --json");
  };
  const Ran known = chat(
      "{{ bos_token }}{% for m in messages %}{{ m.role + ':' + m.content + eos_token }}\n{% endfor %}"
      "{% if add_generation_prompt %}{{ tools }}{% endif %}");
  EXPECT_EQ(nlohmann::json::parse(known.out)["text"], "<|im_start|>system:short<|im_end|>\nuser:hi<|im_end|>\nNone");
  EXPECT_EQ(nlohmann::json::parse(known.out)["tokens"][0], "<|im_start|>");
  // An empty message of the system is one, too.
  EXPECT_EQ(nlohmann::json::parse(out_of("attn tokens --tokenizer . --chat hi --system '' --json"))["text"],
            "<|im_start|>system:<|im_end|>\nuser:hi<|im_end|>\nNone");
  EXPECT_THAT(out_of("attn tokens --tokenizer ."), HasSubstr("chat           answers end with <|im_end|>"));
  std::ofstream(path("messages.json")) << R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"b": 1.0}]})";
  EXPECT_EQ(nlohmann::json::parse(out_of("attn tokens --tokenizer . --messages messages.json --json"))["text"],
            "<|im_start|>user:a<|im_end|>\n[{'b': 1.0}]");
  EXPECT_EQ(run("attn tokens --tokenizer . --messages messages.json more").status, 2);
  std::ofstream(path("messages.json"))
      << R"({"messages": [{"role": "user", "content": "a", "nam": "b", "thinking": null},
    {"role": "user", "content": "a", "nam": "c"}], "tools": [], "add_generation_prompt": true, "enable_thinkng": true})";
  EXPECT_THAT(run("attn tokens --tokenizer . --messages messages.json").err,
              HasSubstr("does not name enable_thinkng, nam of message 1: is it"));
  for (const char* const wrong : {"", "3", "[3]", R"([{"content": "a"}])", R"({"messages": [], "tokenize": 1})"}) {
    std::ofstream(path("messages.json")) << wrong;
    EXPECT_THAT(run("attn tokens --tokenizer . --messages messages.json").err, HasSubstr("in \"messages.json\""))
        << wrong;
    EXPECT_THAT(run("attn tokens --tokenizer . --messages - <messages.json").err, HasSubstr("in standard input"))
        << wrong;
  }
  const Ran lacking = chat("{{ messages | groupby('role') }}");
  EXPECT_EQ(lacking.status, 3);
  EXPECT_THAT(lacking.err, HasSubstr("the filter groupby"));
  EXPECT_THAT(out_of("attn tokens --tokenizer ."), HasSubstr("the filter groupby"));
  EXPECT_EQ(chat("{{ raise_exception('no system') }}").status, 2);
}

TEST_F(Tokens, TemplatesInFilesOfTheirOwn) {
  std::filesystem::copy(kFiles + "smollm.json", path("tokenizer.json"));
  std::filesystem::create_directory(path("additional_chat_templates"));
  std::ofstream(path("tokenizer_config.json")) << R"({"chat_template": "config"})";
  std::ofstream(path("chat_template.jinja")) << "file";
  std::ofstream(path("additional_chat_templates/tool_use.jinja")) << "tools";
  std::ofstream(path("messages.json")) << R"({"messages": [{"role": "user"}], "tools": []})";
  const auto text = [&](const std::string& more) {
    return nlohmann::json::parse(out_of("attn tokens --tokenizer . --json " + more))["text"];
  };
  EXPECT_EQ(text("--chat a"), "file");
  EXPECT_EQ(text("--messages messages.json"), "tools");
}

TEST_F(Tokens, OfTheLinesOfAFile) {
  std::ofstream(path("lines")) << "\"1\\n\"\n[16, 215]\n\"\"\n";
  EXPECT_EQ(out_of("attn tokens --tokenizer " + kFiles + "smollm.json --lines lines"), "[16,198]\n\"1\\u001b\"\n[]\n");
  std::ofstream(path("bad")) << "{}\n";
  EXPECT_EQ(run("attn tokens --tokenizer " + kFiles + "smollm.json --lines bad").status, 3);
  std::ofstream(path("marked")) << "\xef\xbb\xbf\"1\"\n";
  EXPECT_THAT(run("attn tokens --tokenizer " + kFiles + "smollm.json --lines marked").err,
              HasSubstr("[--lines] expected JSON; found a byte order mark in line 1 of \"marked\""));
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
