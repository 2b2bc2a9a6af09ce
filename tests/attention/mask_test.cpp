// Masks that are joined: every part of either is in the whole.
#include "attn/attention.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

// One mask of each kind, and what tells it from a mask without.
std::vector<std::pair<Mask, std::function<bool(const Mask&)>>> kinds() {
  const Tensor keep = Tensor::ones({2, 3}, DType::boolean), bias = Tensor::ones({2, 3});
  const Tensor a = integers({0, 2}), b = integers({0, 3}), lengths = integers({1}), blocks = keep.clone();
  return {{Mask::causal(Align::bottom_right), [](const Mask& m) { return m.is_causal; }},
          {Mask::window(4, 5, Align::bottom_right),
           [](const Mask& m) { return m.window_left == 4 && m.window_right == 5; }},
          {Mask::lengths(lengths), [=](const Mask& m) { return m.key_lengths.raw() == lengths.raw(); }},
          {Mask::sequences(a, b),
           [=](const Mask& m) { return m.query_starts.raw() == a.raw() && m.key_starts.raw() == b.raw(); }},
          {Mask::boolean(keep), [=](const Mask& m) { return m.keep.raw() == keep.raw(); }},
          {Mask::additive(bias), [=](const Mask& m) { return m.bias.raw() == bias.raw(); }},
          {Mask::blocks(blocks, 6, 7), [=](const Mask& m) {
             return m.block_keep.raw() == blocks.raw() && m.block_query == 6 && m.block_key == 7;
           }}};
}

TEST(Masks, JoinedHaveThePartsOfBoth) {
  const auto all = kinds();
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      SCOPED_TRACE(std::to_string(i) + " and " + std::to_string(j));
      if (i == j) {
        expect_error(Error::Kind::argument, {"one ", "two"}, [&] { all[i].first& all[j].first; });
        continue;
      }
      const Mask both = all[i].first & all[j].first;
      EXPECT_FALSE(both.empty());
      for (std::size_t k = 0; k < all.size(); ++k) EXPECT_EQ(all[k].second(both), k == i || k == j) << "kind " << k;
      const bool aligned = i < 2 || j < 2;  // causal, or a window
      EXPECT_EQ(both.align, aligned ? Align::bottom_right : Align::top_left);
    }
  }
}

TEST(Masks, JoinedHaveOneAlignment) {
  expect_error(Error::Kind::argument, {"one alignment"},
               [] { Mask::causal(Align::top_left) & Mask::window(1, 1, Align::bottom_right); });
  EXPECT_TRUE((Mask::none() & Mask::none()).empty());
}

TEST(Masks, CausalKeepIsTheDefinition) {
  for (const auto& [tq, tk] : {std::pair{3, 5}, {5, 3}, {4, 4}, {0, 3}}) {
    for (const Align align : {Align::top_left, Align::bottom_right}) {
      const Tensor keep = causal_keep(tq, tk, align);
      EXPECT_EQ(keep.shape(), (Shape{tq, tk}));
      EXPECT_EQ(keep.dtype(), DType::boolean);
      for (std::int64_t i = 0; i < tq; ++i) {
        const std::int64_t last = align == Align::top_left ? i : i + tk - tq;
        for (std::int64_t j = 0; j < tk; ++j) EXPECT_EQ(keep.at({i, j}), j <= last) << i << ", " << j;
      }
    }
  }
}

TEST(Mask, WithoutItsTensorIsRefused) {
  const auto refused = [](const char* what, const std::function<void()>& make) {
    expect_error(Error::Kind::argument, {"[mask]", what, "no tensor"}, make);
  };
  const Tensor starts = integers({0, 3});
  refused("keep", [] { Mask::boolean({}); });
  refused("bias", [] { Mask::additive({}); });
  refused("key_lengths", [] { Mask::lengths({}); });
  refused("query_starts", [&] { Mask::sequences({}, starts); });
  refused("key_starts", [&] { Mask::sequences(starts, {}); });
  refused("block_keep", [] { Mask::blocks({}, 2, 2); });
}

}  // namespace
}  // namespace attn::test
