// Orders of what is sorted outside of inner loops.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace attn {

// Returns the places 0 to count - 1, each behind those that come `before` it; equal ones stay as they were. The
// standard library would compile a sort for each type, and the library in a page has no room for a dozen.
std::vector<std::size_t> order_of(std::size_t count, const std::function<bool(std::size_t, std::size_t)>& before);

}  // namespace attn
