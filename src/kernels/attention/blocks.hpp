// Block-sparse masks: which keys need no work, and which cells of a tile are hidden.
#pragma once

#include "kernels/attention/query_tile.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Keys [from, from + keys) of some that begin elsewhere.
struct Range {
  std::int64_t from, keys;
};

// The block that a key lies in, and the first key behind a block.
inline std::int64_t block_at(const Problem& p, std::int64_t key) { return (p.block_key_start + key) / p.block_key; }
inline std::int64_t block_end(const Problem& p, std::int64_t block) {
  return (block + 1) * p.block_key - p.block_key_start;
}

// Whether some lane of these groups sees the keys of a block.
inline bool any_sees(const Problem& p, const Interval* seen, int groups, std::int64_t block) {
  const bool* before = nullptr;  // neighbours mostly share their row of blocks
  for (int g = 0; g < groups; ++g) {
    for (const bool* row : seen[g].blocks) {
      if (row && row != before && row[block * p.blocks.key]) return true;
      before = row;
    }
  }
  return false;
}

// The next run of keys, from `from` on, of a range of keys that begins at key `first`: keys that some lane of these
// groups sees by its blocks. It begins and ends at a multiple of `step`; no keys when none are left.
inline Range next_run(const Problem& p, const Interval* seen, int groups, std::int64_t first, const Range& range,
                      std::int64_t step, std::int64_t from) {
  const std::int64_t to = range.from + range.keys;
  if (!p.blocks.data) return {from, to - from};
  std::int64_t begin = to, end = to;
  for (std::int64_t key = first + from; key < first + to && key < p.tk;) {
    const std::int64_t block = block_at(p, key);
    const bool sees = any_sees(p, seen, groups, block);
    if (sees && begin == to) begin = (key - first) / step * step;
    if (!sees && begin != to) {
      end = round_up(key - first, step);
      break;
    }
    key = block_end(p, block);
  }
  return {begin, (end < to ? end : to) - begin};
}

// Whether a group sees some of the keys [first, last).
inline bool sees_some(const Problem& p, const Interval& seen, std::int64_t first, std::int64_t last) {
  const std::int64_t from = seen.any_first > first ? seen.any_first : first;
  const std::int64_t to = seen.any_last < last ? seen.any_last : last;
  return from < to && next_run(p, &seen, 1, from, {0, to - from}, 1, 0).keys > 0;
}

// From the first to the last of `count` keys from `first` on that a group sees.
inline Range seen_range(const Problem& p, const Interval& seen, std::int64_t first, std::int64_t count) {
  std::int64_t from = seen.any_first > first ? seen.any_first - first : 0;
  std::int64_t to = seen.any_last < first + count ? seen.any_last - first : count;
  if (!p.blocks.data) return {from, to - from};
  while (from < to && !any_sees(p, &seen, 1, block_at(p, first + from)))
    from = block_end(p, block_at(p, first + from)) - first;
  while (from < to && !any_sees(p, &seen, 1, block_at(p, first + to - 1)))
    to = block_end(p, block_at(p, first + to - 1) - 1) - first;
  return {from, to - from};
}

inline void apply_blocks(const Problem& p, const Interval& seen, float* s, std::int64_t first_key, std::int64_t keys) {
  for (std::int64_t j = 0, end = 0; j < keys; j = end) {
    const std::int64_t block = block_at(p, first_key + j), next = block_end(p, block) - first_key;
    end = next < keys ? next : keys;
    for (int w = 0; w < kColumns; w += kLanes) {
      std::int32_t hidden[kLanes], some = 0;
      for (int i = 0; i < kLanes; ++i) {
        const bool* row = seen.blocks[w + i];
        hidden[i] = row && !row[block * p.blocks.key] ? -1 : 0;
        some |= hidden[i];
      }
      if (!some) continue;
      const VecI mask = load(hidden);
      for (std::int64_t k = j; k < end; ++k) {
        float* at = s + k * kColumns + w;
        store(at, mask ? splat(kMinusInfinity) : load(at));
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
