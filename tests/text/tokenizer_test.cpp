// Tokenizers beside the reference implementations' ids (make_data.py), and on anything at all.
#include "attn/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <random>

#include "attn/error.hpp"
#include "cases.hpp"
#include "core/seed.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

const BPETokenizer& small() {
  static const BPETokenizer tokenizer = BPETokenizer::load(ATTN_TEST_DATA);
  return tokenizer;
}

struct Case {
  std::string text;
  std::vector<std::int64_t> ids, pieces;
};

std::vector<Case> golden_cases() {
  const Columns columns("cases.safetensors");
  const auto texts = columns.texts("text");
  const auto ids = columns.rows("ids"), pieces = columns.rows("pieces");
  std::vector<Case> cases;
  for (std::size_t i = 0; i < texts.size(); ++i) cases.push_back({texts[i], ids[i], pieces[i]});
  EXPECT_GT(cases.size(), 100u);
  return cases;
}

std::vector<std::int64_t> piece_lengths(std::string_view text) {
  std::vector<std::int64_t> lengths;
  for (const auto piece : gpt2_pieces(text)) lengths.push_back(static_cast<std::int64_t>(piece.size()));
  return lengths;
}

TEST(BPE, SplitsAsGpt2sPattern) {
  for (const Case& c : golden_cases()) EXPECT_EQ(piece_lengths(c.text), c.pieces) << c.text;
}

TEST(BPE, GivesTheReferencesIds) {
  EXPECT_EQ(small().vocab_size(), 513);
  EXPECT_EQ(small().end_of_text(), 512);
  for (const Case& c : golden_cases()) {
    EXPECT_EQ(small().encode(c.text), c.ids) << c.text;
    EXPECT_EQ(small().decode(c.ids), c.text);
  }
}

// Draws a text of bytes, ASCII and characters, with runs that merge.
std::string random_bytes(std::mt19937& random, std::size_t length) {
  std::string text;
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  while (text.size() < length) {
    switch (below(4)) {
      case 0:
        text.push_back(static_cast<char>(below(256)));
        break;
      case 1:
        text.append(below(5) + 1, "ae '.\n"[below(6)]);
        break;
      case 2:
        text.append("the weights of 1024 tokens'll ", below(30));
        break;
      default:
        text.append(std::array{"é", "注意", "\xf0\x9f\x91\xa9", "\xe2\x80", "\xed\xa0\x80", "\xc0\xaf",
                               "<|endoftext|>"}[below(7)]);
    }
  }
  return text;
}

TEST(BPE, AnyBytesComeBack) {
  const unsigned seed = drawn_seed();
  std::mt19937 random(seed);
  for (std::size_t round = 0; round < 300; ++round) {
    const std::string text = random_bytes(random, round);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    EXPECT_EQ(small().decode(small().encode(text)), text);
    const auto lengths = piece_lengths(text);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), text.size());
    EXPECT_EQ(std::count(lengths.begin(), lengths.end(), 0), 0);
  }
}

// The pair learned first, everywhere, until there is none: the rule as it is told, on the files as they are.
std::vector<std::string> merge_plainly(std::vector<std::string> symbols) {
  static const auto ranks = [] {
    std::map<std::pair<std::string, std::string>, std::size_t> read;
    std::istringstream lines(read_data("merges.txt"));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      const auto blank = line.find(' ');
      read.emplace(std::pair(line.substr(0, blank), line.substr(blank + 1)), read.size());
    }
    return read;
  }();
  while (true) {
    auto best = ranks.end();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && (best == ranks.end() || found->second < best->second)) best = found;
    }
    if (best == ranks.end()) return symbols;
    std::vector<std::string> next;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const bool pair = i + 1 < symbols.size() && std::pair(symbols[i], symbols[i + 1]) == best->first;
      next.push_back(pair ? symbols[i] + symbols[i + 1] : symbols[i]);
      i += pair;
    }
    symbols = std::move(next);
  }
}

TEST(BPE, MergesInTheOrderOfTheFile) {
  const unsigned seed = drawn_seed();
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    std::string word;  // of letters that stand for themselves, in one piece
    for (int i = 0; i < 60; ++i) word.push_back("eiunstrgh"[std::uniform_int_distribution<>(0, 8)(random)]);
    std::vector<std::string> letters, found;
    for (const char c : word) letters.emplace_back(1, c);
    for (const auto id : small().encode(word)) found.push_back(small().decode(id));
    EXPECT_EQ(found, merge_plainly(letters));
  }
}

TEST(BPE, OneWordOfAMegabyte) {
  const std::string word(1 << 20, 'e');
  EXPECT_EQ(small().decode(small().encode(word)), word);
  const std::string blank(1 << 20, ' ');
  EXPECT_EQ(small().decode(small().encode(blank + "a")), blank + "a");
}

TEST(BPE, IsWholeAfterItWasMovedFrom) {
  BPETokenizer one = small();
  const BPETokenizer other = std::move(one);
  EXPECT_EQ(one.encode("a b"), other.encode("a b"));  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(one.vocab_size(), small().vocab_size());
}

TEST(BPE, IdsOutsideTheVocabularyAreErrors) {
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{513}, std::int64_t{1} << 40}) {
    EXPECT_THROW(small().decode(id), Error) << id;
  }
}

// ---- files that are not what they should be -------------------------------------------

void expect_rejected(const std::string& vocab, const std::string& merges, const std::string& why) {
  expect_error(Error::Kind::data, {why}, [&] { BPETokenizer(vocab, merges); });
}

TEST(BPE, RejectsBadFiles) {
  const std::string vocab = read_data("vocab.json"), merges = read_data("merges.txt");
  const auto with = [&](const std::string& more) { return vocab.substr(0, vocab.size() - 1) + more + "}"; };
  expect_rejected("", merges, "JSON");
  expect_rejected("[]", merges, "an array");
  expect_rejected("7", merges, "a number");
  expect_rejected("{}", merges, "a token for each byte");
  expect_rejected(std::string(100000, '{'), merges, "JSON");
  expect_rejected("{\"a\": " + std::string(100000, '['), merges, "an array");
  expect_rejected("{\"a\": " + std::string(100000, '{'), merges, "an object");
  expect_rejected("{\n\"a\": x}", merges, "line 2, column 6");
  expect_rejected(vocab + "x", merges, "JSON");
  expect_rejected(vocab + std::string(1, '\0'), merges, "zero byte");
  expect_rejected(with(", \"new\": 2000"), merges, "ids from 0");
  expect_rejected(with(", \"new\": 18446744073709551616"), merges, "fraction");
  expect_rejected(with(", \"new\": 3"), merges, "ids from 0");
  expect_rejected(with(", \"new\": -1"), merges, "negative");
  expect_rejected(with(", \"new\": 513.0"), merges, "fraction");
  expect_rejected(with(", \"a\": 513"), merges, "twice");
  expect_rejected(with(", \"new\": \"513\""), merges, "a string");
  for (const std::string line : {"a", "a ", " a", "a b c", "a  b"}) {
    expect_rejected(vocab, merges + line + "\n", "blank");
  }
  for (const std::string line : {"a nosuchtoken", "q q"}) {
    expect_rejected(vocab, merges + line + "\n", "result are tokens");
  }
  const auto first = merges.find('\n') + 1;
  expect_rejected(vocab, merges + merges.substr(first, merges.find('\n', first) - first), "once");
  EXPECT_THROW(BPETokenizer::load("/nonexistent"), Error);
}

TEST(BPE, ReadsWindowsLinesAndNoVersion) {
  const std::string vocab = read_data("vocab.json"), merges = read_data("merges.txt");
  std::string windows;
  for (const char c : merges) windows.append(c == '\n' ? "\r\n" : std::string(1, c));
  const std::string text = "Your journey starts with one step";
  EXPECT_EQ(BPETokenizer(vocab, windows).encode(text), small().encode(text));
  EXPECT_EQ(BPETokenizer(vocab, merges.substr(merges.find('\n') + 1)).encode(text), small().encode(text));
}

TEST(BPE, DamagedFilesAreErrorsOrTokenizers) {
  const unsigned seed = drawn_seed();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  const auto damage = [&](std::string text) {
    const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    for (std::size_t i = 0; i <= below(4); ++i) text[below(text.size())] ^= static_cast<char>(1 << below(8));
    return below(4) == 0 ? text.substr(0, below(text.size())) : text;
  };
  const std::string vocab = read_data("vocab.json"), merges = read_data("merges.txt");
  for (int round = 0; round < 200; ++round) {
    try {
      const BPETokenizer tokenizer(round % 2 ? vocab : damage(vocab), round % 2 ? damage(merges) : merges);
      const std::string text = random_bytes(random, 200);
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::data) << error.what();
    }
  }
}

// ---- bytes and characters -------------------------------------------------------------

TEST(Bytes, AreTheirOwnIds) {
  const ByteTokenizer tokenizer;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  std::vector<std::int64_t> ids(256);
  std::iota(ids.begin(), ids.end(), 0);
  EXPECT_EQ(tokenizer.encode(all), ids);
  EXPECT_EQ(tokenizer.decode(ids), all);
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_FALSE(tokenizer.end_of_text());
  EXPECT_THROW(tokenizer.decode(256), Error);
  EXPECT_THROW(tokenizer.decode(-1), Error);
}

std::string streamed(std::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  for (const char byte : bytes) text.append(stream.push({&byte, 1}));
  return text + stream.finish();
}

TEST(Utf8, HandsOnWholeCharacters) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xc3"), "a");
  EXPECT_EQ(stream.push("\xa9\xe6\xb3"), "é");
  EXPECT_EQ(stream.push(""), "");
  EXPECT_EQ(stream.push("\xa8"), "注");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("\xf0\x9f"), "");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(stream.finish(), "");
}

// The Unicode Standard's own examples, chapter 3, tables 3-8 to 3-11: how many U+FFFD each takes.
TEST(Utf8, ReplacesAsTheStandardAdvises) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(streamed("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(streamed("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(streamed("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(streamed("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), r + r + r + r + "A");
  EXPECT_EQ(streamed("é注\xf0\x9f\x91\xa9\xf4\x8f\xbf\xbf"), "é注\xf0\x9f\x91\xa9\xf4\x8f\xbf\xbf");
}

}  // namespace
}  // namespace attn::test
