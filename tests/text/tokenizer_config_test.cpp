// Tests the files that stand beside a tokenizer.json: tokenizer_config.json and special_tokens_map.json.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attn/chat.hpp"
#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "cases.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

TEST(TokenizerFiles, TheConfigTellsTheEndAndTheTemplate) {
  const std::string json = json_of("smollm");
  const auto plain = BPETokenizer::parse(json);
  EXPECT_FALSE(plain.end_of_text());
  EXPECT_EQ(plain.chat_template(), "");
  const auto told = BPETokenizer::parse(json, R"({"eos_token": "<|im_end|>", "chat_template": "{{ x }}"})");
  EXPECT_EQ(told.end_of_text(), told.id_of("<|im_end|>"));
  EXPECT_EQ(told.chat_template(), "{{ x }}");
  const auto object = BPETokenizer::parse(json, R"({"eos_token": {"content": "<|endoftext|>"}, "chat_template": [
      {"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(object.end_of_text(), object.id_of("<|endoftext|>"));
  EXPECT_EQ(object.chat_template(), "d");
  EXPECT_EQ(object.chat_template("tool_use"), "t");
  const auto by_name = BPETokenizer::parse(json, R"({"chat_template": {"tool_use": "t", "default": "d"}})");
  EXPECT_EQ(by_name.chat_template(), "d");
  EXPECT_EQ(by_name.chat_template("tool_use"), "t");
  for (const char* other :
       {R"({"chat_template": {"rag": "r"}})", R"({"chat_template": [{"name": "rag", "template": "r"}]})"}) {
    expect_error(Error::Kind::data, {"of several one named default"},
                 [&] { ChatTemplate::of(BPETokenizer::parse(json, other)); });
  }
  const std::string qwen = json_of("qwen");  // "jour" is a token of its vocabulary
  for (const char* key : {"extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"}) {
    const auto more = BPETokenizer::parse(qwen, "{\"" + std::string(key) + "\": [\"jour\"]}");
    const auto ids = more.encode("xjourx");
    EXPECT_TRUE(more.is_special(*more.id_of("jour"))) << key;
    EXPECT_TRUE(std::ranges::count(ids, *more.id_of("jour")) == 1 && ids.size() == 3) << key;
  }
  EXPECT_FALSE(BPETokenizer::parse(qwen).is_special(*BPETokenizer::parse(qwen).id_of("jour")));
  const auto named =
      BPETokenizer::parse(json, R"({"bos_token": {"content": "<|im_start|>"}, "image_token": "<|im_end|>",
      "pad_token": null, "extra_special_tokens": {"audio_token": "<|endoftext|>"}})");
  EXPECT_EQ(named.named_tokens(),
            (std::map<std::string, std::string>{
                {"audio_token", "<|endoftext|>"}, {"bos_token", "<|im_start|>"}, {"image_token", "<|im_end|>"}}));
  // Transformers would give them ids of its own.
  for (const char* lacking :
       {R"({"unk_token": "<u>"})", R"({"bos_token": {"content": "<u>"}})", R"({"extra_special_tokens": ["<u>"]})",
        R"({"extra_special_tokens": {"audio_token": "<u>"}})", R"({"additional_special_tokens": ["<u>"]})"}) {
    expect_error(Error::Kind::data, {"special tokens that tokenizer.json has", "<u>"},
                 [&] { BPETokenizer::parse(json, lacking); });
  }
  EXPECT_THROW(BPETokenizer::parse(json, R"({"chat_template": 7})"), Error);
  EXPECT_THROW(BPETokenizer::parse(json, R"({"chat_template": {"default": 7}})"), Error);
  EXPECT_THROW(BPETokenizer::parse(json, "[]"), Error);
  EXPECT_EQ(plain.special_ids().size(), 3u);
  EXPECT_FALSE(plain.id_of("no such token"));
}

// The ids are transformers' for this folder (5.24), with and without each of these configs.
// As transformers cuts a text with truncation=True: the config's word comes before tokenizer.json's.
TEST(TokenizerFiles, ALongTextIsCutWhereTheFilesSay) {
  const std::string json = json_of("bert"), text = "a b c d e f";
  nlohmann::json left = nlohmann::json::parse(json);
  left["truncation"] = {{"direction", "Left"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  const auto whole = BPETokenizer::parse(json).encode(text);
  const std::size_t size = whole.size();
  ASSERT_GE(size, 8U);
  using Ids = std::vector<std::int64_t>;
  const Ids first{whole[0], whole[1], whole[2], whole[size - 1]},
      last{whole[0], whole[size - 3], whole[size - 2], whole[size - 1]};
  const auto cut = [&](const std::string& file, const char* config) {
    return BPETokenizer::parse(file, config).encode(text, {.most = 4});
  };
  EXPECT_EQ(cut(json, "{}"), first);
  EXPECT_EQ(cut(json, R"({"truncation_side": "left"})"), last);
  EXPECT_EQ(cut(left.dump(), "{}"), last);
  EXPECT_EQ(cut(left.dump(), R"({"truncation_side": "right"})"), first);
  const auto all = BPETokenizer::parse(left.dump());
  EXPECT_EQ(all.encode(text), whole);
  EXPECT_EQ(all.encode(text, {.most = 1}), (Ids{whole[size - 1]}));
  EXPECT_EQ(all.encode(text, {.most = 2}), (Ids{whole[0], whole[size - 1]}));
  expect_error(Error::Kind::data, {"truncation_side to be left or right", "up"},
               [&] { cut(json, R"({"truncation_side": "up"})"); });
  left["truncation"]["direction"] = "left";
  expect_error(Error::Kind::data, {"direction to be Left or Right", "left"}, [&] { cut(left.dump(), "{}"); });
}

// Such code may change the text first: cute-tokenizer's puts letters of its own in place of words.
TEST(TokenizerFiles, CodeForTheTokenizerIsRefused) {
  const std::string json = json_of("qwen");
  for (const char* code :
       {R"({"AutoTokenizer": [null, "code.Fast"]})", R"({"AutoTokenizer": "code.Fast"})", R"(["code.Fast", null])"}) {
    expect_error(Error::Kind::data, {"no code for the tokenizer in auto_map", "code.Fast", "remove it"},
                 [&] { BPETokenizer::parse(json, R"({"auto_map": )" + std::string(code) + "}"); });
  }
  for (const char* none : {"null", "{}", R"({"AutoModel": "code.Model"})", R"({"AutoTokenizer": null})"}) {
    EXPECT_NO_THROW(BPETokenizer::parse(json, R"({"auto_map": )" + std::string(none) + "}")) << none;
  }
}

// As transformers names it, which the tokenizers package alone does not.
TEST(TokenizerFiles, TheTokenThatFillsUpIsASpecialOne) {
  nlohmann::json qwen = nlohmann::json::parse(json_of("qwen"));  // "jour" is a token of its vocabulary
  qwen["padding"] = {
      {"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_to_multiple_of", nullptr}, {"pad_id", 0},
      {"pad_type_id", 0},           {"pad_token", "jour"}};
  const auto is_special = [&](const char* config) {
    const auto tokenizer = BPETokenizer::parse(qwen.dump(), config);
    const bool named = tokenizer.named_tokens().contains("pad_token");
    EXPECT_EQ(named, tokenizer.is_special(*tokenizer.id_of("jour"))) << config;
    return named;
  };
  EXPECT_TRUE(is_special(R"({"eos_token": null})"));
  EXPECT_FALSE(is_special(R"({"pad_token": null})"));
  EXPECT_FALSE(is_special(""));
  const auto other = BPETokenizer::parse(qwen.dump(), R"({"pad_token": "<|im_end|>"})");
  EXPECT_EQ(other.named_tokens().at("pad_token"), "<|im_end|>");
  EXPECT_FALSE(other.is_special(*other.id_of("jour")));
  qwen["padding"]["pad_token"] = "<pad>";
  expect_error(Error::Kind::data, {"special tokens that tokenizer.json has", "<pad>"},
               [&] { BPETokenizer::parse(qwen.dump(), "{}"); });
}

TEST(TokenizerFiles, AConfigThatNamesAnAddedTokenLeavesItsFlags) {
  const std::string json = R"({"version": "1.0", "added_tokens": [{"id": 3, "content": "<x>", "single_word": false,
      "lstrip": true, "rstrip": false, "normalized": false, "special": true}], "decoder": {"type": "Fuse"}, "model": {"type": "BPE",
      "vocab": {"a": 0, "b": 1, " ": 2}, "merges": []}})";
  for (const char* config : {"{}", R"({"pad_token": "<x>"})", R"({"extra_special_tokens": ["<x>"]})",
                             R"({"additional_special_tokens": ["<x>"]})"}) {
    EXPECT_EQ(BPETokenizer::parse(json, config).encode("a <x>b"), (std::vector<std::int64_t>{0, 3, 1})) << config;
  }
}

// The library does as transformers, whose from_pretrained() merges the file over a config without added_tokens_decoder.
TEST(TokenizerJsonFiles, OlderFoldersNameTheirTokensInAMapOfTheirOwn) {
  const Folder folder;
  std::filesystem::copy_file(ATTN_TEST_DATA "/tokenizers/qwen.json", folder / "tokenizer.json");
  const auto write = [&](const char* name, const std::string& text) { test::write(folder / name, text); };
  const auto named = [&] { return BPETokenizer::load(folder).named_tokens(); };
  using Tokens = std::map<std::string, std::string>;
  write("special_tokens_map.json", R"({"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>",
                                       "additional_special_tokens": ["jour"]})");
  EXPECT_EQ(named(), (Tokens{{"bos_token", "<|im_start|>"}, {"eos_token", "<|im_end|>"}}));
  const BPETokenizer tokenizer = BPETokenizer::load(folder);
  EXPECT_TRUE(tokenizer.end_of_text());
  EXPECT_EQ(tokenizer.end_of_text(), tokenizer.id_of("<|im_end|>"));
  write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})");
  EXPECT_EQ(named(),
            (Tokens{{"bos_token", "<|im_start|>"}, {"eos_token", "<|im_end|>"}, {"pad_token", "<|endoftext|>"}}));
  write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>", "added_tokens_decoder": {}})");
  EXPECT_EQ(named(), (Tokens{{"eos_token", "<|endoftext|>"}}));
  write("tokenizer_config.json", "{}");
  for (const char* bad : {"[]", "{", R"({"bos_token": 7})"}) {
    write("special_tokens_map.json", bad);
    expect_error(Error::Kind::data, {"special_tokens_map.json"}, [&] { BPETokenizer::load(folder); });
  }
}

}  // namespace
}  // namespace attn::test
