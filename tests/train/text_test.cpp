// The text of training: what is trained on, what is validated with, and what is refused.
#include "attn/train.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

TEST(TrainText, IsCutIntoWhatIsTrainedOnAndWhatIsNot) {
  std::vector<std::int64_t> ids(100);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  const TrainText text(ids, 4, 0.3);
  EXPECT_EQ(text.training_tokens(), 70);
  EXPECT_EQ(text.validation_tokens(), 30);
  Generator rng(1), same(1);
  const TrainBatch batch = text.training(rng, 50);
  const Tensor starts = same.randint(0, 66, {50});
  for (std::int64_t i = 0; i < 50; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(batch.ids.at({i, j}), starts.at({i}) + static_cast<double>(j));
      EXPECT_EQ(batch.targets.at({i, j}), batch.ids.at({i, j}) + 1);
    }
  }
  std::vector<double> first;
  for (const TrainBatch& some : text.validation(4)) {
    EXPECT_LE(some.ids.size(0), 4);
    for (std::int64_t i = 0; i < some.ids.size(0); ++i) first.push_back(some.ids.at({i, 0}));
  }
  EXPECT_THAT(first, testing::ElementsAre(70, 74, 78, 82, 86, 90, 95));
}

TEST(TrainText, IsWholeAfterItWasMovedFrom) {
  TrainText one(std::vector<std::int64_t>(100, 7), 4);
  const TrainText other = std::move(one);
  Generator rng(1);
  EXPECT_EQ(one.training(rng, 2).ids.at({1, 3}), 7);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(one.validation_tokens(), other.validation_tokens());
  EXPECT_EQ(one.largest_id(), 7);
}

TEST(TrainText, Refuses) {
  const std::vector<std::int64_t> ids(100, 1);
  expect_error(Error::Kind::argument, {"between 0 and 1", "found nan"}, [&] { TrainText(ids, 4, kNan); });
  expect_error(Error::Kind::argument, {"between 0 and 1", "found 1"}, [&] { TrainText(ids, 4, 1); });
  expect_error(Error::Kind::argument, {"at least 1 token"}, [&] { TrainText(ids, 0); });
  expect_error(Error::Kind::data, {"more than 10 tokens", "90 and 10"}, [&] { TrainText(ids, 10); });
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{1} << 31}) {
    std::vector<std::int64_t> wrong = ids;
    wrong[50] = id;
    expect_error(Error::Kind::argument, {"ids from 0", std::to_string(id)}, [&] { TrainText(wrong, 4); });
  }
  const TrainText text(ids, 4);
  Generator rng(1);
  for (const std::int64_t batch : {0, -1}) {
    const std::vector<std::string> parts{"a batch of at least 1", std::to_string(batch)};
    expect_error(Error::Kind::argument, parts, [&] { text.validation(batch); });
    expect_error(Error::Kind::argument, parts, [&] { text.training(rng, batch); });
  }
}

}  // namespace
}  // namespace attn::test
