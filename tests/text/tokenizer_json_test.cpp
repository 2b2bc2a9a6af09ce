// Tokenizers of released models beside the reference packages' ids (make_tokenizers.py), and files that lie.
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/tokenizer.hpp"
#include "cases.hpp"
#include "core/seed.hpp"
#include "core/testing.hpp"
#include "lm/gguf_bytes.hpp"

namespace attn::test {
namespace {

constexpr std::array kKinds{"gpt2",    "smollm", "llama3",  "qwen", "granite", "llama2",
                            "mistral", "gemma",  "unknown", "bert", "words"};

BPETokenizer load(const std::string& file) { return BPETokenizer::load(ATTN_TEST_DATA "/tokenizers/" + file); }

const Columns& columns() {
  static const Columns all("tokenizers/cases.safetensors");
  return all;
}

// Returns bytes as the package shows them: what is no UTF-8 is U+FFFD.
std::string shown(std::string_view bytes) {
  Utf8Stream stream;
  const std::string text = stream.push(bytes);
  return text + stream.finish();
}

class TokenizerJson : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJson, GivesThePackagesIdsAndTexts) {
  const std::string kind = GetParam();
  const BPETokenizer tokenizer = load(kind + ".json");
  const auto texts = columns().texts("text");
  const auto ids = columns().rows(kind + ".ids"), plain = columns().rows(kind + ".plain");
  const auto decoded = columns().texts(kind + ".decoded"), skipped = columns().texts(kind + ".skipped");
  ASSERT_GE(texts.size(), 30u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(texts[i]);
    EXPECT_EQ(tokenizer.encode(texts[i]), ids[i]);
    EXPECT_EQ(tokenizer.encode(texts[i], {.add_special_tokens = false}), plain[i]);
    EXPECT_EQ(shown(tokenizer.decode(ids[i])), decoded[i]);
    EXPECT_EQ(shown(tokenizer.decode(ids[i], {.skip_special_tokens = true})), skipped[i]);
  }
}

TEST_P(TokenizerJson, AStreamOfIdsIsTheText) {
  const BPETokenizer tokenizer = load(std::string(GetParam()) + ".json");
  for (const auto& ids : columns().rows(std::string(GetParam()) + ".ids")) {
    for (const bool skip : {false, true}) {
      DecodeStream stream(tokenizer, {.skip_special_tokens = skip});
      std::string text;
      for (const std::int64_t id : ids) text += stream.push(id);
      EXPECT_EQ(text + stream.finish(), shown(tokenizer.decode(ids, {.skip_special_tokens = skip})));
    }
  }
}

// Texts of `size` bytes of every kind that a tokenizer may be slow at.
std::map<std::string, std::string> textures(std::size_t size) {
  std::mt19937 random(3);
  std::map<std::string, std::string> texts;
  const auto fill = [&](const char* name, const auto& part) {
    for (std::string& text = texts[name]; text.size() < size;) text += part();
  };
  for (const char* one : {"a", " ", "\n", "0", ".", "'", "\u0301", "\u2581", "\xff"}) {
    fill(one, [&] { return std::string(one); });
  }
  const auto one_of = [&](auto&&... parts) {
    const std::string all[] = {parts...};
    return all[random() % std::size(all)];
  };
  const auto letters = [&](unsigned count) {
    std::string word;
    for (unsigned i = 0; i < count; ++i) word.push_back(static_cast<char>('a' + random() % 26));
    return word;
  };
  fill("bytes", [&] { return std::string(1, static_cast<char>(random())); });
  fill("words", [&] { return letters(1 + static_cast<unsigned>(random() % 9)) + " "; });
  fill("one word", [&] { return letters(64); });
  fill("digits", [&] { return std::to_string(random()); });
  fill("scripts", [&] { return one_of("a", "\u03b1", "\u0416", "\u6f22", "\uac00", "\u0928\u093f", "\U0001f642"); });
  fill("one script each", [&] { return one_of("\u03b1", "\u03b2", "\u03b3", "\u03c9"); });
  fill("blanks", [&] { return one_of(" ", "  ", "\n", "\t", "\r\n", "\u00a0", "x"); });
  fill("signs", [&] { return one_of("'", "'s", "<|", "|>", "_", "..", "\"", "\u2026"); });
  fill("marks", [&] { return one_of("e", "\u0301", "\u0323", "\u1100", "\u1161", "\u11a8"); });
  return texts;
}

// Eight times the text takes some eight times as long, where a quadratic way would take 64 times.
TEST_P(TokenizerJson, SlowTimeIsLinearInTheText) {
  const BPETokenizer tokenizer = load(std::string(GetParam()) + ".json");
  const auto seconds = [&](const std::string& text) {  // of this process: the machine may have more to do
    const std::clock_t start = std::clock();
    const auto ids = tokenizer.encode(text, {.add_special_tokens = false});
    EXPECT_LE(ids.size(), 3 * text.size() + 1);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  auto small = textures(1 << 17), large = textures(1 << 20);
  if (std::string(GetParam()) == "words") {  // whose pattern looks from each digit to the end of the digits
    EXPECT_THROW(tokenizer.encode(large.at("0")), Error);
    for (const char* of_digits : {"0", "digits"}) large.erase(of_digits);
  }
  for (const auto& [name, text] : large) {
    bool is_linear = false;
    // What else the machine does slows a process by its caches, too. A quadratic way is as slow every time.
    for (int tries = 0; tries < 5 && !is_linear; ++tries) {
      const double one = seconds(small.at(name)), eight = seconds(text);
      is_linear = eight < 24 * one + 0.05;
      if (std::getenv("ATTN_PRINT_TIMES")) std::printf("%s, %s: %.3f s\n", GetParam(), name.c_str(), eight);
    }
    EXPECT_TRUE(is_linear) << name;
  }
}

TEST_P(TokenizerJson, AnyBytesHaveIds) {
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const BPETokenizer tokenizer = load(std::string(GetParam()) + ".json");
  // Qwen's normal form, granite's blank before a number and a vocabulary without bytes change a text.
  const std::string kind = GetParam();
  const bool lossless = kind != "qwen" && kind != "granite" && kind != "unknown" && kind != "bert" && kind != "words";
  for (int round = 0; round < 200; ++round) {
    std::string text(1, 'x');  // no blank, which some steps would put before it
    for (int i = 0; i < round; ++i) {
      text.push_back(random() % 4 ? static_cast<char>(random()) : "ae \n"[random() % 4]);
    }
    const std::string back = tokenizer.decode(tokenizer.encode(text, {.add_special_tokens = false}));
    EXPECT_EQ(back, lossless ? text : back);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJson, testing::ValuesIn(kKinds), [](const auto& of) { return of.param; });

TEST(TokenizerGguf, GivesSentencePiecesIds) {
  const BPETokenizer tokenizer = load("sentencepiece.gguf");
  const auto texts = columns().texts("sentencepiece.text");
  const auto ids = columns().rows("sentencepiece.ids");
  ASSERT_GT(texts.size(), 20u);
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(tokenizer.encode(texts[i]), ids[i]) << texts[i];
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("größer als 注意", {.add_special_tokens = false})), "größer als 注意");
  EXPECT_EQ(tokenizer.end_of_text(), 2);
}

TEST(TokenizerGguf, IsTheTokenizerOfItsJson) {
  const BPETokenizer tokenizer = load("llama3.gguf");
  const auto texts = columns().texts("text");
  const auto ids = columns().rows("llama3.ids");
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(tokenizer.encode(texts[i]), ids[i]) << texts[i];
  EXPECT_EQ(tokenizer.end_of_text(), tokenizer.id_of("<|end_of_text|>"));
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.end_of_text()));
}

void expect_gguf_refused(GgufBytes file, const std::string& key, const std::function<void(GgufBytes&)>& change) {
  change(file);
  const std::string bytes = file.str();
  const auto parsed = io::Gguf::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "x");
  expect_error(Error::Kind::data, {key}, [&] { BPETokenizer::parse(parsed); });
}

// Without them a text would become its bytes, and nobody would notice.
TEST(TokenizerGguf, WithoutMergesIsRefused) {
  const GgufBytes whole(read_data("tokenizers/llama3.gguf"));
  const std::string key = "tokenizer.ggml.merges";
  expect_gguf_refused(whole, key, [&](GgufBytes& file) { file.metadata.erase(key); });
  expect_gguf_refused(whole, key, [&](GgufBytes& file) { file.metadata[key] = std::vector<std::string>{}; });
  expect_gguf_refused(whole, key, [&](GgufBytes& file) { file.metadata[key] = std::int64_t{3}; });
}

// Generation does not leave out ids that a file names, so that a file which names some is refused.
TEST(TokenizerGguf, SuppressedTokensAreRefused) {
  expect_gguf_refused(GgufBytes(read_data("tokenizers/llama3.gguf")), "ggml.suppress_tokens",
                      [](GgufBytes& file) { file.metadata["tokenizer.ggml.suppress_tokens"] = std::int64_t{3}; });
}

// The texts are those of sentencepiece 0.2.3's SentencePieceNormalizer("identity", remove_extra_whitespaces=True).
TEST(TokenizerGguf, ExtraBlanksGoAsInSentencePiece) {
  GgufBytes file(read_data("tokenizers/sentencepiece.gguf"));
  const auto parsed = [&] {
    const std::string bytes = file.str();
    return BPETokenizer::parse(io::Gguf::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "x"));
  };
  file.metadata["tokenizer.ggml.remove_extra_whitespaces"] = false;
  const BPETokenizer plain = parsed();
  file.metadata["tokenizer.ggml.remove_extra_whitespaces"] = true;
  const BPETokenizer tokenizer = parsed();
  for (const auto& [text, normal] : {std::pair{"  a  b ", "a b"},
                                     {"   ", ""},
                                     {"", ""},
                                     {"a\tb  c", "a\tb c"},
                                     {"a \u3000 b", "a \u3000 b"},
                                     {" \n a", "\n a"},
                                     {"a   ", "a"}}) {
    EXPECT_EQ(tokenizer.encode(text), plain.encode(normal)) << text;
  }
}

// SentencePiece joins the two characters, of which one is no token.
TEST(TokenizerGguf, TokensOfCharactersThatAreNoneAreRefused) {
  const GgufBytes whole(read_data("tokenizers/sentencepiece.gguf"));
  for (const auto& [token, character] : {std::pair{"eψ", "ψ"}, {"ψe", "ψ"}, {"ψω", "ψ"}}) {
    const std::string piece = token, message = "a token for each character of \"" + piece + "\"; found none for \"";
    expect_gguf_refused(whole, message + character, [&](GgufBytes& file) {
      std::get<std::vector<std::string>>(file.metadata.at("tokenizer.ggml.tokens"))[303] = piece;
    });
  }
}

TEST(TokenizerGguf, ScoresThatAreNoNumbersAreRefused) {
  std::string file = read_data("tokenizers/sentencepiece.gguf");
  const std::string key = "tokenizer.ggml.scores";
  const std::size_t first =
      file.find(key) + key.size() + 4 + 4 + 8;             // kinds of the list and of its values, and a count
  file.replace(first, 4, std::string("\0\0\xc0\x7f", 4));  // NaN
  const auto parsed = io::Gguf::parse(std::as_bytes(std::span(file.data(), file.size())), "scores");
  EXPECT_THROW(BPETokenizer::parse(parsed), Error);
}

// The texts are the package's (tokenizers 0.23.3), which takes the blanks from the first token, too.
TEST(TokenizerFiles, ATextBeginsWithoutBlanksBeforeSigns) {
  const std::string json = R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a ' b": 1, " .": 2, "##c !": 3},
    "unk_token": "[UNK]"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}})";
  const auto decoded = [](const std::string& file, std::initializer_list<std::int64_t> ids) {
    return BPETokenizer::parse(file).decode(std::vector(ids));
  };
  EXPECT_EQ(decoded(json, {1, 1}), "a'b a'b");
  EXPECT_EQ(decoded(json, {2, 3}), ".c!");
  EXPECT_EQ(decoded(json, {3, 2}), "##c! .");
  EXPECT_EQ(decoded(replaced(json, "true", "false"), {1, 1}), "a ' b a ' b");
}

// ---- files that are not what they should be -------------------------------------------

void expect_refused(const std::string& json, const std::string& why) {
  expect_error(Error::Kind::data, {why}, [&] { BPETokenizer::parse(json); });
}

TEST(TokenizerFiles, PartsThatAreNotKnownAreRefusedByName) {
  const std::string gpt2 = json_of("gpt2"), qwen = json_of("qwen"), gemma = json_of("gemma"),
                    llama2 = json_of("llama2");
  expect_refused(replaced(gpt2, "\"type\":\"BPE\"", "\"type\":\"Unigram\""), "Unigram");
  // No text could say which of the two it means; the package takes another one from load to load.
  const std::string token = R"(, "normalized": true, "special": false, "single_word": false, "lstrip": false,
    "rstrip": false})";
  expect_refused(R"({"added_tokens": [{"id": 3, "content": "Tok")" + token + R"(, {"id": 4, "content": "TOK")" + token +
                     R"(], "normalizer": {"type": "Lowercase"}, "decoder": {"type": "Fuse"},
                        "model": {"type": "BPE", "vocab": {"t": 0, "o": 1, "k": 2}, "merges": []}})",
                 "every normal form once; found \"TOK\"");
  expect_refused(R"({"model": {"type": "Unigram", "vocab": [["<unk>", 0], ["a", -1]], "unk_id": 0}})", "Unigram");
  nlohmann::json two = nlohmann::json::parse(gpt2);  // as the package refuses it
  two["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  two["pre_tokenizer"]["add_prefix_space"] = false;
  expect_refused(two.dump(), "prepend_scheme to be never");
  expect_refused(replaced(qwen, "\"type\":\"NFC\"", "\"type\":\"NFKC\""), "NFKC");
  nlohmann::json pieces = nlohmann::json::parse(json_of("bert"));  // of which the package cuts the letters for bytes
  pieces["pre_tokenizer"] = pieces["decoder"] = {{"type", "ByteLevel"}};
  expect_refused(pieces.dump(), "a pre_tokenizer before WordPiece that attn knows; found \"ByteLevel\"");
  expect_refused(replaced(qwen, "\"type\":\"Split\"", "\"type\":\"UnicodeScripts\""), "UnicodeScripts");
  expect_refused(replaced(qwen, "\\\\p{N}|", "\\\\p{Greek}|"), "\\p{Greek}");
  expect_refused(replaced(qwen, "\\\\p{N}|", "(?<!a)|"), "(?<!");
  expect_refused(replaced(qwen, "\\\\p{N}|", "(a*)*|"), "endless repetition");
  expect_refused(replaced(qwen, "\\\\p{N}|", "\\\\1|"), "\\1");
  expect_refused(replaced(qwen, "'s|", "'st|"), "st");
  expect_refused(replaced(qwen, "\"Isolated\"", "\"MergedWithAll\""), "MergedWithAll");
  expect_refused(replaced(gpt2, "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"BPEDecoder\""),
                 "BPEDecoder");
  expect_refused(replaced(gemma, "\"type\":\"TemplateProcessing\"", "\"type\":\"PairProcessing\""), "PairProcessing");
  // The package takes these in another order than attn.
  expect_refused(replaced(gemma, "{\"type\":\"Fuse\"}", "{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}"),
                 "decoder after Fuse that attn knows; found \"ByteFallback\"");
  const std::string blanks = R"({"type":"Replace","pattern":{"String":"▁"},"content":" "})";
  expect_refused(replaced(gemma, "{\"type\":\"Fuse\"}", "{\"type\":\"Fuse\"}," + blanks), "decoder after Fuse");
  expect_refused(replaced(gemma, "{\"type\":\"Fuse\"}", blanks + ",{\"type\":\"Fuse\"}"), "decoder after ByteFallback");
  expect_refused(replaced(llama2, "{\"String\":\" \"}", "{\"Regex\":\" +(\"}"), " +(");
  expect_refused(replaced(gpt2, "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\""), "##");
  expect_refused(replaced(gpt2, "\"dropout\":null", "\"dropout\":0.5"), "dropout");
  expect_refused(replaced(gpt2, "\"dropout\":null", "\"dropout\":0.5,\"dropout\":null"), "\"dropout\" twice");
  expect_refused(replaced(gpt2, "\"special\":true", "\"special\":false,\"special\":true"), "\"special\" twice");
}

// The package takes these steps one after the other, and attn in an order of its own.
TEST(TokenizerFiles, StepsInAnOrderThatAttnLacksAreRefused) {
  const nlohmann::json whole = nlohmann::json::parse(json_of("mistral"));
  const auto refused = [&](const char* part, const char* steps, const std::string& why) {
    nlohmann::json changed = whole;
    changed[part] = nlohmann::json::parse(steps);
    expect_refused(changed.dump(), why);
  };
  refused("post_processor", R"({"type":"Sequence","processors":[
      {"type":"BertProcessing","sep":["</s>",2],"cls":["<s>",1]},
      {"type":"BertProcessing","sep":["<s>",1],"cls":["</s>",2]}]})",
          "post_processor after another");
  refused("decoder", R"({"type":"Sequence","decoders":[
      {"type":"WordPiece","prefix":"##"},{"type":"Metaspace","replacement":"▁"}]})",
          "decoder after WordPiece that attn knows; found \"Metaspace\"");
  refused("decoder", R"({"type":"Sequence","decoders":[
      {"type":"Replace","pattern":{"String":"a"},"content":"b"},{"type":"ByteLevel"}]})",
          "decoder after Replace that attn knows; found \"ByteLevel\"");
  refused("normalizer", R"({"type":"Strip","strip_left":true,"strip_right":false})",
          "no normalizer beside prepend_scheme");
  refused("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[
      {"type":"Metaspace","replacement":"▁"},{"type":"Metaspace","replacement":"▁"}]})",
          "pre_tokenizer after another that attn knows; found \"Metaspace\"");
  nlohmann::json many{{"type", "Sequence"}, {"pretokenizers", nlohmann::json::array()}};
  for (int i = 0; i < 101; ++i) many["pretokenizers"].push_back({{"type", "Digits"}});
  refused("pre_tokenizer", many.dump().c_str(), "pretokenizers to be a list of at most 100 steps");
  nlohmann::json unknown = nlohmann::json::parse(json_of("unknown"));
  unknown["model"]["unk_token"] = "<nosuch>";
  expect_refused(unknown.dump(), "unk_token in the vocabulary");
}

// An encoder adds up embeddings of types, which are all 0 here, and without a pair there is no text B.
TEST(TokenizerFiles, TemplatesOfOtherTypesAndTextsAreRefused) {
  const auto refused = [](const char* piece, const char* key, const nlohmann::json& value, const std::string& why) {
    nlohmann::json changed = nlohmann::json::parse(json_of("gemma"));
    bool found = false;
    for (nlohmann::json& member : changed["post_processor"]["single"]) {
      if (member.contains(piece)) member[piece][key] = value, found = true;
    }
    EXPECT_TRUE(found) << piece;
    expect_refused(changed.dump(), why);
  };
  refused("SpecialToken", "type_id", 1, "type_id to be 0; found 1");
  refused("Sequence", "type_id", 1, "type_id to be 0; found 1");
  refused("Sequence", "id", "B", "id to be \"A\"; found \"B\"");
}

// The package's Metaspace keeps none of the first token's blanks either.
TEST(TokenizerFiles, MetaspaceTakesEveryBlankFromTheFirstToken) {
  nlohmann::json gemma = nlohmann::json::parse(json_of("gemma"));
  gemma["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  const auto tokenizer = BPETokenizer::parse(gemma.dump());
  const std::vector<std::int64_t> ids{*tokenizer.id_of("▁▁"), *tokenizer.id_of("▁▁"), *tokenizer.id_of("a")};
  EXPECT_EQ(tokenizer.decode(ids), "  a");
  EXPECT_EQ(tokenizer.decode(std::span(ids).first(1)), "");
}

TEST(TokenizerFiles, VocabulariesThatLieAreRefused) {
  const std::string gpt2 = json_of("gpt2"), gemma = json_of("gemma");
  const std::string merges = gpt2.substr(gpt2.find("\"merges\""));
  const auto without_merges = gpt2.substr(0, gpt2.find(",\"merges\"")) + "}}";
  expect_refused(without_merges, "merges");
  expect_refused(replaced(gpt2, "\"vocab\":{", "\"words\":{"), "vocab to be");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[[\"q\",\"q\"],"), "result are tokens");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[[\"nosuch\",\"a\"],"), "result are tokens");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[[\"a\"],"), "two tokens");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[[\"a\",\"b\",\"c\"],"), "two tokens");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[[[\"a\"]],"), "two tokens");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[7,"), "two tokens");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[\"a  b\","), "two tokens");
  expect_refused(replaced(gpt2, "\"merges\":[[\"", "\"merges\":[[\"h\",\"e\"],[\"h\",\"e\"],[\""), "once");
  expect_refused(replaced(gpt2, "\"merges\":[", "\"merges\":[],\"merges\":[[\"h\",\"e\"]],\"merges\":["),
                 "\"merges\" twice");
  const std::string one_more = replaced(gpt2, "[{\"id\":560", "[{\"id\":561");  // after another token
  expect_refused(replaced(one_more, "\"vocab\":{", "\"vocab\":{\"x\\u00e9y\":0,"), "every id once");
  expect_refused(replaced(one_more, "\"vocab\":{", "\"vocab\":{\"a\":600,"), "every token once");
  expect_refused(replaced(one_more, "\"vocab\":{", "\"vocab\":{\"new\":4000000000,"), "ids below");
  expect_refused(replaced(gpt2, "\"vocab\":{", "\"vocab\":{\"new\":-1,"), "whole numbers");
  expect_refused(replaced(gpt2, "\"vocab\":{", "\"vocab\":{\"new\":{},"), "whole numbers");
  expect_refused(replaced(gemma, "\"<0x41>\"", "\"<0xZZ>\""), "a token for each byte");
  expect_refused("{\n\"model\": x}", "line 2, column 10");
  expect_refused("", "JSON");
  expect_refused("[]", "an object");
  expect_refused("{}", "model");
  expect_refused(gpt2 + "}", "JSON");
  expect_refused(gpt2 + std::string(1, '\0'), "zero byte");
  expect_refused("\xef\xbb\xbf" + gpt2, "a byte order mark");  // as by the package
  expect_refused("{\"model\":" + std::string(100000, '['), "deep");
  std::string keys = "{\"k0\":0";
  for (int i = 1; i < 2000; ++i) keys += ",\"k" + std::to_string(i) + "\":0";
  expect_refused(keys + "}", "1000 keys");
}

TEST(TokenizerFiles, AddedTokensThatLieAreRefused) {
  const std::string gpt2 = json_of("gpt2");
  expect_refused(replaced(gpt2, "\"content\":\"<|endoftext|>\"", "\"content\":\"\""), "content");
  expect_refused(replaced(gpt2, "\"content\":\"<|endoftext|>\"", "\"content\":\"" + std::string(5000, 'x') + "\""),
                 "content");
  expect_refused(replaced(gpt2, "\"added_tokens\":[{\"id\":", "\"added_tokens\":[{\"id\":4000"),
                 "the id 560 of the added");
  expect_refused(replaced(gpt2, "\"added_tokens\":[{\"id\":", "\"added_tokens\":[{\"id\":-"), "whole number");
  expect_refused(replaced(json_of("bert"), "\"normalized\":false", "\"normalized\":true"), "in its normal form beside");
  const std::string words = json_of("words");  // its normalizer takes white space from the ends of texts
  const std::size_t line_end = words.find("\"normalized\":false", words.find("\"content\":\"\\n\""));
  expect_refused(std::string(words).replace(line_end, 18, "\"normalized\":true"),
                 "of which its normal form has something");
}

// The tokenizers package numbers them by itself, and passes over what the file says.
TEST(TokenizerFiles, AddedTokensHaveTheIdsOfThePackage) {
  const std::string gpt2 = json_of("gpt2"), all = "\"added_tokens\":[";
  const auto token = [](int id, const std::string& content) {
    return "{\"id\":" + std::to_string(id) + ",\"content\":\"" + content +
           "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},";
  };
  const auto with = [&](const std::string& tokens) { return replaced(gpt2, all, all + tokens); };
  const std::string later = replaced(gpt2, all + "{\"id\":560", all + "{\"id\":562");
  EXPECT_EQ(BPETokenizer::parse(replaced(later, all, all + token(560, "<A>") + token(561, "<B>"))).id_of("<B>"), 561u);
  EXPECT_EQ(BPETokenizer::parse(with(token(64, "a"))).id_of("a"), 64u);  // of the vocabulary
  expect_refused(with(token(561, "<A>")), "the id 560 of the added token \"<A>\"");
  expect_refused(with(token(560, "<A>")), "the id 561 of the added token \"<|endoftext|>\"");
  expect_refused(with(token(5, "<A>")), "the id 560 of the added token \"<A>\"");
  expect_refused(with(token(65, "a")), "the id 64 of the added token \"a\"");
  expect_refused(replaced(later, all, all + token(560, "<A>") + token(561, "<A>")), "the id 560 of the added token");
}

TEST(TokenizerFiles, DamagedFilesAreErrorsOrTokenizers) {
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const char* const kind : kKinds) {
    const std::string whole = json_of(kind);
    for (int round = 0; round < 60; ++round) {
      std::string json = whole;
      for (int i = 0; i < 3; ++i) json[random() % json.size()] ^= static_cast<char>(1 << random() % 8);
      if (round % 4 == 0) json.resize(random() % json.size());
      try {
        const BPETokenizer tokenizer = BPETokenizer::parse(json);
        tokenizer.decode(tokenizer.encode("Your journey, 1024 <s> größer\n"));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), Error::Kind::data) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace attn::test
