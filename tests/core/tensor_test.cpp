#include <memory>
#include <numeric>
#include <vector>

#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

// 0, 1, 2, …
Tensor counted(const Shape& shape, DType dtype = DType::f32) {
  std::vector<double> all(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i);
  return tensor(all, shape, dtype);
}

std::vector<double> list(std::initializer_list<double> all) { return all; }

TEST(Tensor, DefaultHoldsNothingAndSaysSo) {
  Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(none.numel(), 0);
  EXPECT_THROW((void)none.at({}), Error);
  EXPECT_THROW(none.set({}, 1), Error);
  EXPECT_THROW((void)none.item(), Error);
  EXPECT_THROW(none.fill(1), Error);
  EXPECT_THROW((void)none.clone(), Error);
  EXPECT_THROW((void)none.to(DType::f64), Error);
  EXPECT_THROW((void)none.expand({2}), Error);
  EXPECT_THROW((void)none.unsqueeze(0), Error);
  EXPECT_THROW((void)none.view({1}), Error);
  EXPECT_THROW((void)none.select(0, 0), Error);
  EXPECT_THROW(Tensor::ones({}).copy_from(none), Error);
  EXPECT_THROW(none.copy_from(Tensor::ones({}, DType::f64)), Error);
}

// A tensor that was moved holds nothing, rather than memory that another one frees.
TEST(Tensor, MovedFromHoldsNothing) {
  Tensor from = counted({2, 3});
  Tensor to = std::move(from);
  EXPECT_FALSE(from.defined());
  EXPECT_EQ(from.rank(), 0u);
  EXPECT_EQ(from.numel(), 0);
  EXPECT_THROW((void)from.clone(), Error);
  from = std::move(to);
  EXPECT_FALSE(to.defined());
  EXPECT_EQ(values(from), list({0, 1, 2, 3, 4, 5}));
  Tensor& itself = from;
  from = std::move(itself);
  EXPECT_EQ(values(from), list({0, 1, 2, 3, 4, 5}));
}

TEST(Tensor, ViewsOfOneStorageMayOverlapInACopy) {
  Tensor x = counted({6});
  x.slice(0, 1, 6).copy_from(x.slice(0, 0, 5));
  EXPECT_EQ(values(x), list({0, 0, 1, 2, 3, 4}));
  x.slice(0, 0, 5).copy_from(x.slice(0, 1, 6));
  EXPECT_EQ(values(x), list({0, 1, 2, 3, 4, 4}));
  Tensor square = counted({3, 3});
  square.copy_from(square.transpose(0, 1));
  EXPECT_EQ(values(square), list({0, 3, 6, 1, 4, 7, 2, 5, 8}));
}

// A user's own memory has no storage to be known by, and may come with two owners.
TEST(Tensor, ViewsOfOwnMemoryMayOverlapInACopy) {
  std::vector<float> memory(9);
  const auto view = [&](std::int64_t first, const Shape& shape, const Shape& strides, bool owned = false) {
    return Tensor::from_blob(memory.data() + first, shape, strides, DType::f32,
                             owned ? std::make_shared<int>(1) : nullptr);
  };
  for (const bool owned : {false, true}) {
    std::iota(memory.begin(), memory.end(), 0.0F);
    const Tensor square = view(0, {3, 3}, {3, 1}, owned);
    square.copy_from(view(0, {3, 3}, {1, 3}, owned));
    EXPECT_EQ(values(square), list({0, 3, 6, 1, 4, 7, 2, 5, 8}));
    square.copy_from(view(8, {3, 3}, {-3, -1}, owned));
    EXPECT_EQ(values(square), list({8, 5, 2, 7, 4, 1, 6, 3, 0}));
    view(1, {2, 2}, {2, 1}, owned).copy_from(view(0, {2, 2}, {2, 1}, owned));
    EXPECT_EQ(values(square), list({8, 8, 5, 2, 7, 1, 6, 3, 0}));
  }
  std::vector<double> numbers{1, 2, 3, 4};
  const Tensor narrow = Tensor::from_blob(numbers.data() + 2, {4}, {1}, DType::f32);
  narrow.copy_from(Tensor::from_blob(numbers.data(), {4}, {1}, DType::f64));
  EXPECT_EQ(values(narrow), list({1, 2, 3, 4}));
}

TEST(Tensor, FactoriesFillAndAlign) {
  EXPECT_EQ(values(Tensor::zeros({2, 2})), list({0, 0, 0, 0}));
  EXPECT_EQ(values(Tensor::ones({3}, DType::i8)), list({1, 1, 1}));
  EXPECT_EQ(values(Tensor::full({2}, 2.5, DType::bf16)), list({2.5, 2.5}));
  EXPECT_EQ(values(Tensor::of({1, 2, 3})), list({1, 2, 3}));
  const Tensor rows = Tensor::of({{1, 2}, {3, 4}, {5, 6}});
  EXPECT_EQ(rows.shape(), (Shape{3, 2}));
  EXPECT_EQ(values(rows), list({1, 2, 3, 4, 5, 6}));
  for (const std::int64_t n : {1, 3, 100}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(Tensor::empty({n}, DType::u8).raw()) % 64, 0u);
  }
  expect_error(Kind::shape, {"rows of 2 values", "a row of 1"}, [] { Tensor::of({{1, 2}, {3}}); });
  const std::vector<float> five(5);
  expect_error(Kind::shape, {"(2, 3)", "5 values"}, [&] { Tensor::from(std::span<const float>(five), {2, 3}); });
}

TEST(Tensor, ShapesThatCannotBeAreErrorsNotCrashes) {
  constexpr std::int64_t big = std::int64_t{1} << 40;
  expect_error(Kind::shape, {"2^63"}, [] { Tensor::empty({big, big}); });
  expect_error(Kind::shape, {"at least 0"}, [] { Tensor::zeros({2, -3}); });
  EXPECT_THROW(Tensor::empty({INT64_MAX}, DType::f64), std::bad_alloc);
  EXPECT_EQ(Tensor::empty({0, big, big}).numel(), 0);
  EXPECT_EQ(Tensor::empty({big, big, 0}).transpose(0, 2).clone().numel(), 0);
}

TEST(Tensor, RankZeroIsOneElement) {
  Tensor x = Tensor::full({}, 7);
  EXPECT_EQ(x.rank(), 0u);
  EXPECT_EQ(x.numel(), 1);
  EXPECT_EQ(x.item(), 7);
  EXPECT_EQ(x.at({}), 7);
  x.set({}, 8);
  EXPECT_EQ(x.clone().item(), 8);
  EXPECT_EQ(values(x.expand({3})), list({8, 8, 8}));
  EXPECT_EQ(x.view({1, 1}).shape(), (Shape{1, 1}));
  EXPECT_THROW((void)x.size(0), Error);
  EXPECT_THROW((void)x.transpose(0, 0), Error);
}

TEST(Tensor, RankEightWorksAndRankNineIsAnError) {
  const Tensor x = counted({2, 1, 2, 1, 2, 1, 2, 1});
  const Tensor y = x.transpose(0, 6).contiguous();
  EXPECT_EQ(y.at({1, 0, 0, 0, 0, 0, 0, 0}), x.at({0, 0, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(x.select(0, 1).rank(), 7u);
  expect_error(Kind::shape, {"at most 8 dimensions"}, [&] { (void)x.unsqueeze(0); });
}

TEST(Tensor, EmptyTensorsPassThroughEveryView) {
  const Tensor x = Tensor::zeros({2, 0, 3});
  EXPECT_EQ(x.numel(), 0);
  EXPECT_TRUE(x.defined());
  EXPECT_EQ(x.transpose(0, 2).shape(), (Shape{3, 0, 2}));
  EXPECT_EQ(x.transpose(0, 2).contiguous().shape(), (Shape{3, 0, 2}));
  EXPECT_EQ(x.select(0, 1).shape(), (Shape{0, 3}));
  EXPECT_EQ(x.slice(2, 3, 3).shape(), (Shape{2, 0, 0}));
  EXPECT_EQ(x.view({0, 7}).shape(), (Shape{0, 7}));
  EXPECT_EQ(x.to(DType::f16).shape(), (Shape{2, 0, 3}));
  x.fill(1);
  x.clone().copy_from(x);
  EXPECT_THROW((void)x.item(), Error);
  EXPECT_TRUE(Tensor::from_blob(nullptr, {0}, {1}, DType::f32).defined());
}

TEST(Tensor, AtAndSetCheckTheirBounds) {
  Tensor x = counted({2, 3}, DType::i32);
  EXPECT_EQ(x.at({1, 2}), 5);
  x.set({0, 1}, 9.7);
  EXPECT_EQ(x.at({0, 1}), 9);
  expect_error(Kind::shape, {"(2, 3)", "2 in dimension 0"}, [&] { (void)x.at({2, 0}); });
  expect_error(Kind::shape, {"-1 in dimension 1"}, [&] { (void)x.at({0, -1}); });
  expect_error(Kind::shape, {"(2, 3)", "1 indices"}, [&] { x.set({1}, 0); });
  expect_error(Kind::shape, {"one element", "(2, 3)"}, [&] { (void)x.item(); });
}

TEST(Tensor, DataAsksForTheRightType) {
  const Tensor x = counted({2}, DType::i32);
  EXPECT_EQ(x.data<std::int32_t>()[1], 1);
  expect_error(Kind::dtype, {"float32", "int32", "to(dtype)"}, [&] { (void)x.data<float>(); });
  expect_error(Kind::dtype, {"uint8"}, [&] { (void)x.data<std::uint8_t>(); });
}

TEST(Tensor, ViewsShareElements) {
  const Tensor x = counted({2, 3});
  x.view({3, 2}).set({2, 1}, 50);
  x.transpose(0, 1).set({0, 1}, 30);
  x.select(1, 1).set({0}, 10);
  x.slice(1, 2, 3).set({0, 0}, 20);
  EXPECT_EQ(values(x), list({0, 10, 20, 30, 4, 50}));
  EXPECT_EQ(x.select(-2, -1).raw(), x.data<float>() + 3);
  EXPECT_EQ(x.slice(0, 1, 2).storage(), x.storage());
}

TEST(Tensor, ViewInfersOneSizeAndRefusesWhatDoesNotFit) {
  const Tensor x = counted({2, 6});
  EXPECT_EQ(x.view({3, -1}).shape(), (Shape{3, 4}));
  EXPECT_EQ(x.view({-1}).shape(), Shape{12});
  expect_error(Kind::shape, {"12 elements", "(5, -1)"}, [&] { (void)x.view({5, -1}); });
  expect_error(Kind::shape, {"12 elements", "(3, 3)"}, [&] { (void)x.view({3, 3}); });
  expect_error(Kind::shape, {"one size of -1"}, [&] { (void)x.view({-1, -1}); });
  EXPECT_THROW((void)x.view({-12}), Error);
  EXPECT_THROW((void)x.view({0, -1}), Error);
  expect_error(Kind::shape, {"contiguous"}, [&] { (void)x.transpose(0, 1).view({12}); });
  EXPECT_EQ(x.slice(0, 0, 1).view({6}).shape(), Shape{6});  // a stride that is never taken does not count
  EXPECT_EQ(x.slice(0, 0, 1).transpose(0, 1).view({6}).shape(), Shape{6});
}

TEST(Tensor, SelectAndSliceCheckTheirRange) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(values(x.select(0, -1)), list({3, 4, 5}));
  EXPECT_EQ(values(x.slice(-1, 1, 3)), list({1, 2, 4, 5}));
  EXPECT_EQ(x.slice(0, 2, 2).shape(), (Shape{0, 3}));
  EXPECT_THROW((void)x.select(0, 2), Error);
  EXPECT_THROW((void)x.select(0, -3), Error);
  EXPECT_THROW((void)x.select(2, 0), Error);
  EXPECT_THROW((void)x.select(-3, 0), Error);
  expect_error(Kind::shape, {"<= 2", "0:3"}, [&] { (void)x.slice(0, 0, 3); });
  EXPECT_THROW((void)x.slice(0, -1, 1), Error);
  EXPECT_THROW((void)x.slice(0, 2, 1), Error);
}

TEST(Tensor, ExpandRepeatsWithoutCopying) {
  const Tensor x = counted({3, 1});
  const Tensor y = x.expand({2, 3, 4});
  EXPECT_EQ(y.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(y.strides(), (Shape{0, 1, 0}));
  EXPECT_EQ(y.at({1, 2, 3}), 2);
  EXPECT_EQ(y.raw(), x.raw());
  EXPECT_FALSE(y.is_contiguous());
  EXPECT_EQ(values(x.expand({3, 0})).size(), 0u);
  expect_error(Kind::shape, {"(2, 4)", "(3, 1)"}, [&] { (void)x.expand({2, 4}); });
  EXPECT_THROW((void)x.expand({3}), Error);
  EXPECT_THROW((void)x.expand({3, -1}), Error);
  EXPECT_THROW((void)x.expand({INT64_MAX, 3, 1}), Error);
}

TEST(Tensor, UnsqueezeAddsADimensionOfOne) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(x.unsqueeze(0).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(x.unsqueeze(1).shape(), (Shape{2, 1, 3}));
  EXPECT_TRUE(x.unsqueeze(1).is_contiguous());
  EXPECT_THROW((void)x.unsqueeze(3), Error);
  EXPECT_THROW((void)x.unsqueeze(-4), Error);
}

TEST(Tensor, NegativeAndZeroStridesAreReadInOrder) {
  std::vector<float> memory{0, 1, 2, 3, 4, 5};
  const Tensor reversed = Tensor::from_blob(memory.data() + 5, {2, 3}, {-3, -1}, DType::f32);
  EXPECT_EQ(values(reversed), list({5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values(reversed.transpose(0, 1)), list({5, 2, 4, 1, 3, 0}));
  EXPECT_EQ(values(reversed.slice(1, 1, 3)), list({4, 3, 1, 0}));
  EXPECT_EQ(values(Tensor::from_blob(memory.data() + 2, {2, 2}, {0, 1}, DType::f32)), list({2, 3, 2, 3}));
  reversed.fill(9);
  EXPECT_EQ(memory, (std::vector<float>{9, 9, 9, 9, 9, 9}));
  // A stride of a dimension of one is never taken, whatever it is.
  const Tensor odd = Tensor::from_blob(memory.data(), {3, 1, 1}, {2, INT64_MAX, INT64_MIN}, DType::f32);
  EXPECT_EQ(values(odd), list({9, 9, 9}));
}

TEST(Tensor, BlobsKeepTheirOwnerAlive) {
  auto memory = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::weak_ptr<void> watch = memory;
  Tensor view = Tensor::from_blob(memory->data(), {3}, {1}, DType::f32, memory).slice(0, 1, 2);
  memory.reset();
  EXPECT_EQ(view.item(), 2);
  view = {};
  EXPECT_TRUE(watch.expired());
  expect_error(Kind::argument, {"(3,)", "null"}, [] { Tensor::from_blob(nullptr, {3}, {1}, DType::f32); });
  expect_error(Kind::shape, {"stride"}, [] {
    float x = 0;
    Tensor::from_blob(&x, {1}, {1, 1}, DType::f32);
  });
}

TEST(Tensor, CopiesAreCopiesAndContiguousIsItself) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(x.contiguous().raw(), x.raw());
  EXPECT_NE(x.clone().raw(), x.raw());
  EXPECT_EQ(x.to(DType::f32).raw(), x.raw());
  const Tensor turned = x.transpose(0, 1);
  EXPECT_NE(turned.contiguous().raw(), x.raw());
  EXPECT_EQ(values(turned), list({0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(turned.contiguous().is_contiguous());
  expect_error(Kind::shape, {"(2, 3)", "(3, 2)"}, [&] { x.copy_from(turned); });
  expect_error(Kind::argument, {"[clone]", "undefined"}, [] { (void)Tensor{}.clone(); });
  expect_error(Kind::argument, {"[to]", "undefined"}, [] { (void)Tensor{}.to(DType::f64); });
}

TEST(Tensor, AnyStridesReadAsTheContiguousCopy) {
  for_seeds(50, [](std::mt19937& rng) {
    Shape shape;
    for (std::int64_t rank = pick(rng, 1, 5); rank > 0; --rank) shape.push_back(pick(rng, 0, 4));
    const Tensor x = counted(shape, DType::f64), y = scattered(rng, x);
    EXPECT_EQ(values(y), values(x));
    EXPECT_EQ(values(y.transpose(0, -1).contiguous()), values(x.transpose(0, -1)));
  });
}

// ---- joined -----------------------------------------------------------------------------

TEST(Join, StackAddsAFirstDimension) {
  const std::vector<Tensor> parts{Tensor::of({1, 2}), Tensor::of({3, 4}), Tensor::of({5, 6})};
  const Tensor all = stack(parts);
  EXPECT_EQ(all.shape(), (Shape{3, 2}));
  EXPECT_EQ(values(all), list({1, 2, 3, 4, 5, 6}));
  EXPECT_THROW(stack({}), Error);
  expect_error(Kind::shape, {"[stack]", "(2,)", "(1,)"}, [] {
    stack(std::vector<Tensor>{Tensor::of({1, 2}), Tensor::of({1})});
  });
  expect_error(Kind::argument, {"[stack]", "holds nothing"}, [] { stack(std::vector<Tensor>{Tensor{}}); });
  expect_error(Kind::dtype, {"[stack]", "float32", "float64"}, [] {
    stack(std::vector<Tensor>{Tensor::ones({1}), Tensor::ones({1}, DType::f64)});
  });
}

TEST(Join, ConcatLastJoinsRows) {
  const std::vector<Tensor> parts{Tensor::of({{1, 2}, {3, 4}}), Tensor::of({5, 6}).view({2, 1}), Tensor::zeros({2, 0})};
  EXPECT_EQ(values(concat_last(parts)), list({1, 2, 5, 3, 4, 6}));
  EXPECT_THROW(concat_last({}), Error);
  EXPECT_THROW(concat_last(std::vector<Tensor>{Tensor::ones({})}), Error);
  expect_error(Kind::shape, {"[concat_last]", "(2, 1)", "(3, 1)"}, [] {
    concat_last(std::vector<Tensor>{Tensor::ones({2, 1}), Tensor::ones({3, 1})});
  });
  EXPECT_THROW(concat_last(std::vector<Tensor>{Tensor::ones({2, 1}), Tensor::ones({2})}), Error);
  expect_error(Kind::dtype, {"[concat_last]", "float32", "int8"}, [] {
    concat_last(std::vector<Tensor>{Tensor::ones({1}), Tensor::ones({1}, DType::i8)});
  });
}

TEST(Join, TrilOnes) {
  EXPECT_EQ(values(tril_ones(2, 3)), list({1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(values(tril_ones(3, 2)), list({1, 0, 1, 1, 1, 1}));
  EXPECT_EQ(tril_ones(2, 2, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(tril_ones(0, 3).numel(), 0);
  EXPECT_THROW(tril_ones(-1, 2), Error);
}

}  // namespace
}  // namespace attn::test
