#include "core/testing.hpp"

namespace attn::test {
namespace {

TEST(Shape, PrintsAsPythonPrintsATuple) {
  EXPECT_EQ(Shape{}.str(), "()");
  EXPECT_EQ(Shape{4}.str(), "(4,)");
  EXPECT_EQ((Shape{2, 6, 3}).str(), "(2, 6, 3)");
}

TEST(Shape, InsertsErasesAndCompares) {
  Shape shape{2, 4};
  shape.insert(1, 3);
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
  shape.insert(0, 1);
  shape.push_back(5);
  EXPECT_EQ(shape, (Shape{1, 2, 3, 4, 5}));
  shape.erase(0);
  shape.erase(3);
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
  EXPECT_FALSE(shape == (Shape{2, 3}));
  EXPECT_FALSE(shape == (Shape{2, 3, 5}));
  EXPECT_EQ(shape.back(), 4);
  EXPECT_EQ(shape.size(), 3u);
  EXPECT_TRUE(Shape{}.empty());
}

TEST(Shape, HoldsEightDimensionsAndNoMore) {
  Shape shape{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(shape.numel(), 40320);
  expect_error(Error::Kind::shape, {"at most 8 dimensions", "9"}, [&] { shape.push_back(9); });
  EXPECT_EQ(shape.size(), 8u);
  expect_error(Error::Kind::shape, {"at most 8 dimensions"}, [] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; });
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{2, 3}).numel(), 6);
  EXPECT_EQ((Shape{2, 0, 3}).numel(), 0);
  constexpr std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ((Shape{0, big, big}).numel(), 0);
  EXPECT_EQ((Shape{big, big, 0}).numel(), 0);
  EXPECT_EQ((Shape{INT64_MAX}).numel(), INT64_MAX);
  expect_error(Error::Kind::shape, {"2^63", "(1099511627776, 1099511627776)"}, [] { (Shape{big, big}).numel(); });
  expect_error(Error::Kind::shape, {"at least 0", "(2, -1)"}, [] { (Shape{2, -1}).numel(); });
  expect_error(Error::Kind::shape, {"at least 0", "(0, -1)"}, [] { (Shape{0, -1}).numel(); });
}

TEST(Shape, StridesOfARowMajorTensor) {
  EXPECT_EQ((Shape{2, 3, 4}).contiguous_strides(), (Shape{12, 4, 1}));
  EXPECT_EQ((Shape{2, 0, 4}).contiguous_strides(), (Shape{4, 4, 1}));
  EXPECT_EQ(Shape{}.contiguous_strides(), Shape{});
  constexpr std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ((Shape{0, big, big}).contiguous_strides().back(), 1);  // no overflow on the way
}

TEST(Error, SaysWhereWhatWasExpectedWhatWasFoundAndHowToMend) {
  const Error error(Error::Kind::file, "load", "a file", "nothing", "check the name");
  EXPECT_STREQ(error.what(), "[load] expected a file; found nothing; check the name");
  EXPECT_EQ(error.kind(), Error::Kind::file);
  EXPECT_EQ(error.op(), "load");
  EXPECT_STREQ(Error(Error::Kind::data, "a", "b", "c").what(), "[a] expected b; found c");
}

TEST(Shape, PlacesThatAreNotThereAreRefused) {
  Shape shape{2, 3};
  for (const std::size_t place : {std::size_t{2}, std::size_t{9}, SIZE_MAX}) {
    expect_error(Error::Kind::argument, {"a place in (2, 3)", std::to_string(place)}, [&] { shape.erase(place); });
  }
  expect_error(Error::Kind::argument, {"a place in (2, 3)", "3"}, [&] { shape.insert(3, 1); });
  expect_error(Error::Kind::argument, {"a place in ()"}, [] { Shape().erase(0); });
  shape.insert(2, 4), shape.erase(0);
  EXPECT_EQ(shape, (Shape{3, 4}));
}

}  // namespace
}  // namespace attn::test
