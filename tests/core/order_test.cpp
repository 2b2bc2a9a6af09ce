#include "core/order.hpp"

#include <gtest/gtest.h>

namespace attn::test {
namespace {

TEST(Order, EqualOnesStayAsTheyWere) {
  const std::vector<int> values{3, 1, 3, 0, 1};
  const auto up = [&](std::size_t a, std::size_t b) { return values[a] < values[b]; };
  const auto down = [&](std::size_t a, std::size_t b) { return values[a] > values[b]; };
  EXPECT_EQ(order_of(values.size(), up), (std::vector<std::size_t>{3, 1, 4, 0, 2}));
  EXPECT_EQ(order_of(values.size(), down), (std::vector<std::size_t>{0, 2, 1, 4, 3}));
  EXPECT_TRUE(order_of(0, up).empty());
}

}  // namespace
}  // namespace attn::test
