// The fixed tree in which the parts of a sum are added, whoever holds them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "attn/distributed.hpp"

namespace attn::distributed {

// A node is a run of groups: 2^k of them, beginning at a multiple of 2^k, or what there is of these. Whether `a` and
// `b` behind it are the two halves of a node.
inline bool are_halves(const Run& a, const Run& b, std::int64_t groups) {
  const std::int64_t size = a.length();
  const bool is_power = (size & (size - 1)) == 0;
  return is_power && a.first % (2 * size) == 0 && b.first == a.last && b.last == std::min(a.first + 2 * size, groups);
}

// Adds parts that come in the order of their groups. Add is called as add(first, second) and leaves the sum in first.
template <class T>
class TreeSum {
 public:
  explicit TreeSum(std::int64_t groups) : groups_(groups) {}

  template <class Add>
  void push(Run run, T part, const Add& add) {
    nodes_.emplace_back(run, std::move(part));
    while (nodes_.size() > 1 && are_halves(nodes_.end()[-2].first, nodes_.back().first, groups_)) {
      auto& [first, sum] = nodes_.end()[-2];
      add(sum, nodes_.back().second);
      first.last = nodes_.back().first.last;
      nodes_.pop_back();
    }
  }
  // These nodes could not be added yet; it is one node when all groups are there.
  std::vector<std::pair<Run, T>>& nodes() noexcept { return nodes_; }

 private:
  std::int64_t groups_;
  std::vector<std::pair<Run, T>> nodes_;
};

// The nodes that remain of a run of groups.
inline std::vector<Run> nodes_of(const Run& own, std::int64_t groups) {
  TreeSum<int> tree(groups);
  for (std::int64_t g = own.first; g < own.last; ++g) tree.push({g, g + 1}, 0, [](int&, int) {});
  std::vector<Run> runs;
  for (const auto& [run, unused] : tree.nodes()) runs.push_back(run);
  return runs;
}

}  // namespace attn::distributed
