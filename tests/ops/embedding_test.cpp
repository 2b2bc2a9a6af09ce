// The gradient of tables whose rows a text takes: its sums, and the tables that it refuses.
#include "ops/embedding.hpp"

#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

Tensor ids_of(std::initializer_list<std::int64_t> ids, Shape shape) {
  return Tensor::from(std::span(ids.begin(), ids.size()), shape);
}

Parameter table(const Shape& shape) { return Parameter{.name = "table", .value = Tensor::zeros(shape)}; }

// Two texts of four tokens, with ids and places that repeat; more columns than one task has.
TEST(Embedding, EachRowsGradientIsTheSumOfItsTokens) {
  const Tensor ids = ids_of({3, 0, 3, 5, 5, 3, 1, 0}, {2, 4});
  for (const std::int64_t width : {1, 64, 65, 150}) {
    for (const Tensor& places : {Tensor{}, ids_of({2, 6, 2, 0}, {4})}) {
      Generator rng(1);
      const Tensor dx = rng.randn({2, 4, width}), tokens = rng.randn({6, width}), positions = rng.randn({7, width});
      const Tensor d_tokens = tokens.clone(), d_positions = positions.clone();
      embed_backward(dx, ids, d_tokens, d_positions, places);
      for (std::int64_t j = 0; j < width; ++j) {
        std::vector<double> token(6), position(7);
        for (std::int64_t row = 0; row < 8; ++row) {
          const std::int64_t i = row % 4, place = places.defined() ? places.data<std::int64_t>()[i] : i;
          token[static_cast<std::size_t>(ids.data<std::int64_t>()[row])] += dx.at({row / 4, i, j});
          position[static_cast<std::size_t>(place)] += dx.at({row / 4, i, j});
        }
        for (std::int64_t r = 0; r < 6; ++r)
          EXPECT_NEAR(d_tokens.at({r, j}), tokens.at({r, j}) + token[static_cast<std::size_t>(r)], 1e-5) << r;
        for (std::int64_t r = 0; r < 7; ++r)
          EXPECT_NEAR(d_positions.at({r, j}), positions.at({r, j}) + position[static_cast<std::size_t>(r)], 1e-5) << r;
      }
      const Tensor before = d_positions.clone();
      embed_backward(dx, ids, {}, d_positions, places), embed_backward(dx, ids, d_tokens, {}, places);
      EXPECT_FALSE(identical(d_positions, before));
    }
  }
}

// The largest row that is taken is there, and the columns are those of the text: a table may have been replaced.
TEST(Embedding, TablesThatLackARowOrAColumnAreRefused) {
  const Tensor ids = ids_of({1, 4, 0}, {1, 3}), dx = Tensor::ones({1, 3, 8}), places = ids_of({0, 6, 2}, {3});
  const auto back = [&](const Shape& tokens, const Shape& positions, const Tensor& at) {
    embed_backward(dx, ids, Tensor::zeros(tokens), Tensor::zeros(positions), at);
  };
  back({5, 8}, {7, 8}, places), back({5, 8}, {3, 8}, {}), add_positions(dx, table({7, 8}), places);
  for (const Shape& tokens : {Shape{4, 8}, {5, 7}, {5, 9}, {40}}) {
    expect_error(Kind::shape, {"a table of tokens of 8 columns and more than 4 rows", tokens.str()}, [&] {
      back(tokens, {7, 8}, places);
    });
  }
  for (const Shape& positions : {Shape{6, 8}, {7, 7}, {7, 9}, {56}}) {
    expect_error(Kind::shape, {"a table of positions of 8 columns and more than 6 rows", positions.str()}, [&] {
      back({5, 8}, positions, places);
    });
    expect_error(Kind::shape, {"a table of positions of 8 columns and more than 6 rows", positions.str()},
                 [&] { add_positions(dx, table(positions), places); });
  }
  expect_error(Kind::shape, {"more than 2 rows", "(2, 8)"}, [&] { back({5, 8}, {2, 8}, {}); });
}

}  // namespace
}  // namespace attn::test
