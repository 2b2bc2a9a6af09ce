#include "core/order.hpp"

#include <algorithm>
#include <numeric>

namespace attn {

std::vector<std::size_t> order_of(std::size_t count, const std::function<bool(std::size_t, std::size_t)>& before) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return before(a, b); });
  return order;
}

}  // namespace attn
