// The embedding that ships, against NumPy and Python's re (words.json of make_words.py), and against what it promises.
#include "attn/words.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attn/error.hpp"

namespace attn::test {
namespace {

using Words = std::vector<std::string>;

double dot(const Tensor& x, std::int64_t i, std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < x.size(1); ++c) sum += x.at({i, c}) * x.at({j, c});
  return sum;
}

TEST(Words, AreCutAndEmbeddedAsByPython) {
  const nlohmann::json cases = nlohmann::json::parse(std::ifstream(ATTN_TEST_DATA "/words.json"));
  ASSERT_GE(cases.size(), 8U);
  for (const auto& one : cases) {
    const std::string text = one["text"];
    EXPECT_EQ(split_words(text), one["words"].get<Words>()) << text;
    const auto expected = one["vectors"].get<std::vector<std::vector<float>>>();
    const Tensor vectors = embed_words(text, one["d_in"].get<std::int64_t>());
    ASSERT_EQ(vectors.shape(), (Shape{std::ssize(expected), one["d_in"].get<std::int64_t>()})) << text;
    for (std::int64_t i = 0; i < vectors.size(0); ++i) {
      for (std::int64_t c = 0; c < vectors.size(1); ++c) {
        EXPECT_EQ(static_cast<float>(vectors.at({i, c})),
                  expected[static_cast<std::size_t>(i)][static_cast<std::size_t>(c)])
            << text;
      }
    }
  }
}

TEST(Words, ThatAreRelatedAreNearEachOther) {
  const Words words{"cat", "kitten", "river", "bank", "money", "walk", "walked", "the", "The", "zxqv", "zxqvs"};
  const Tensor x = embed_words(words);
  const auto nearest = [&](std::int64_t to, std::int64_t from) { return dot(x, to, from); };
  for (std::int64_t i = 0; i < x.size(0); ++i) EXPECT_NEAR(dot(x, i, i), 3, 0.1) << words[static_cast<std::size_t>(i)];
  for (const auto& [a, b] : {std::pair{0, 1}, {2, 3}, {3, 4}, {5, 6}, {9, 10}}) {
    for (std::int64_t other = 0; other < x.size(0); ++other) {
      const bool related = other == a || other == b || a == 3 || b == 3;
      if (related) continue;
      EXPECT_GT(nearest(a, b), nearest(a, other) + 0.5) << words[static_cast<std::size_t>(other)];
    }
  }
  EXPECT_GT(nearest(2, 3), nearest(2, 4) + 0.5);  // the bank is near the river and near money, which are far apart
  EXPECT_GT(nearest(3, 4), nearest(2, 4) + 0.5);
  for (std::int64_t c = 0; c < x.size(1); ++c) EXPECT_EQ(x.at({7, c}), x.at({8, c}));
}

TEST(Words, BytesThatAreNoTextAreLetters) {
  EXPECT_EQ(split_words("a\xff\xfe b"), (Words{"a\xff\xfe", "b"}));
  const Tensor x = embed_words("\xff\xf0\x9f \xed\xa0\x80", 5);
  for (std::int64_t i = 0; i < 2; ++i) EXPECT_NEAR(dot(x, i, i), 3, 0.1);
}

TEST(Words, WithoutAWordOrWithoutASizeAreRefused) {
  EXPECT_TRUE(split_words(" \n\t").empty());
  EXPECT_THROW(embed_words(""), Error);
  EXPECT_THROW(embed_words(" \n"), Error);
  EXPECT_THROW(embed_words(Words{"a", ""}), Error);
  EXPECT_THROW(embed_words("a", 0), Error);
}

}  // namespace
}  // namespace attn::test
