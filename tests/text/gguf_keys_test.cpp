// Every key of a GGUF vocabulary, one at a time: what llama.cpp takes it for it is here, or it is refused by name
// (make_gguf_keys.py).
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/tokenizer.hpp"
#include "cases.hpp"
#include "core/testing.hpp"
#include "lm/gguf_bytes.hpp"

namespace attn::test {
namespace {

using Json = nlohmann::json;

// Tells where the library goes another way than llama.cpp, with the reason.
bool differs(const std::string& file, const std::string& key, const Json& value) {
  // llama.cpp leaves blanks as they are. The key has SentencePiece's meaning here.
  if (file == "sentencepiece" && key == "remove_extra_whitespaces" && value == true) return true;
  // llama.cpp begins a text with token 101, or bos_token_id. The key is followed here.
  if (file == "bert" && key == "cls_token_id") return true;
  // Without an end llama.cpp takes token 11, GPT-2's comma.
  return file == "llama3" && key == "eos_token_id" && value.is_null();
}

io::GgufValue other_types(const io::GgufValue& types, std::int64_t special) {
  auto all = std::get<std::vector<std::int64_t>>(types);
  for (std::int64_t& type : all) type = type >= 2 && type <= 4 ? special : type;
  return all;
}

io::GgufValue other_scores(const io::GgufValue& scores, bool equal) {
  auto all = std::get<std::vector<double>>(scores);
  if (equal) std::ranges::fill(all, 0.0);
  std::ranges::reverse(all);
  return all;
}

void change(std::map<std::string, io::GgufValue>& metadata, const std::string& key, const Json& value) {
  const std::string full = "tokenizer.ggml." + key;
  if (value.is_null()) {
    metadata.erase(full);
  } else if (key == "token_type") {
    metadata[full] = other_types(metadata.at(full), value.get<std::int64_t>());
  } else if (key == "scores") {
    metadata[full] = other_scores(metadata.at(full), value == "equal");
  } else if (value.is_boolean()) {
    metadata[full] = value.get<bool>();
  } else if (value.is_number()) {
    metadata[full] = value.get<std::int64_t>();
  } else {
    metadata[full] = value.get<std::string>();
  }
}

TEST(GgufKeys, ATypeThatNoTokenHasIsRefused) {
  for (const int type : {-3, 0, 7, 99}) {
    GgufBytes bytes(read_data("tokenizers/llama3.gguf"));
    change(bytes.metadata, "token_type", type);
    const std::string data = bytes.str();
    const auto parsed = io::Gguf::parse(std::as_bytes(std::span(data.data(), data.size())), "x");
    expect_error(Error::Kind::data, {"token_type from 1 to 6; found " + std::to_string(type)},
                 [&] { BPETokenizer::parse(parsed); });
  }
}

// The ids are llama.cpp's (llama-cpp-python 0.3.36): Spark's digits stand alone, and DeepSeek's by threes.
TEST(GgufKeys, DigitsAreCutAsTheNameSays) {
  const std::pair<const char*, std::vector<std::int64_t>> expected[] = {{"spark2_5", {16, 17, 18, 19}},
                                                                        {"deepseek-v3", {561, 19}}};
  for (const auto& [name, ids] : expected) {
    GgufBytes bytes(read_data("tokenizers/llama3.gguf"));
    auto& tokens = std::get<std::vector<std::string>>(bytes.metadata.at("tokenizer.ggml.tokens"));
    ASSERT_EQ(tokens[561], "123");
    tokens[300] = "12";
    auto& merges = std::get<std::vector<std::string>>(bytes.metadata.at("tokenizer.ggml.merges"));
    merges = {"1 2", "12 3"};
    change(bytes.metadata, "pre", name);
    const std::string data = bytes.str();
    const auto parsed = io::Gguf::parse(std::as_bytes(std::span(data.data(), data.size())), "x");
    EXPECT_EQ(BPETokenizer::parse(parsed).encode("1234", {.add_special_tokens = false}), ids) << name;
  }
}

TEST(GgufKeys, EachIsFollowedOrRefused) {
  const Json golden = Json::parse(read_data("gguf_keys.json"));
  std::map<std::string, int> followed, refused;
  for (const Json& of : golden["cases"]) {
    const std::string file = of[0], key = of[1];
    SCOPED_TRACE(file + " " + key + " = " + of[2].dump());
    GgufBytes bytes(read_data("tokenizers/" + file + ".gguf"));
    change(bytes.metadata, key, of[2]);
    const std::string data = bytes.str();
    const auto parsed = io::Gguf::parse(std::as_bytes(std::span(data.data(), data.size())), "x");
    try {
      const BPETokenizer tokenizer = BPETokenizer::parse(parsed);
      ++followed[file];
      if (of[3].is_null() || differs(file, key, of[2])) continue;
      const Json& answer = golden["answers"][of[3].get<std::size_t>()];
      for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
        const std::string text = golden["texts"][i];
        EXPECT_EQ(Json(tokenizer.encode(text)), answer["ids"][i]) << text;
        EXPECT_EQ(Json(tokenizer.encode(text, {.add_special_tokens = false})), answer["plain"][i]) << text;
      }
      if (file == "bert") continue;  // which writes nothing
      EXPECT_EQ(Json(tokenizer.end_ids()), answer["ends"]);
    } catch (const Error& error) {
      ++refused[file];
      EXPECT_EQ(error.kind(), Error::Kind::data);
      EXPECT_THAT(error.what(), testing::HasSubstr(key == "model" ? "tokenizer.ggml." : key));
    }
  }
  for (const auto& [file, count] : followed) EXPECT_GT(count, 40) << file << ", and refused: " << refused[file];
  EXPECT_EQ(followed.size(), 3u);
}

}  // namespace
}  // namespace attn::test
