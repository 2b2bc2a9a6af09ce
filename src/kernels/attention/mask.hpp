// Which keys a tile of queries sees: intervals (causal masks, windows, lengths, packed sequences), blocks, a boolean
// mask; and what is added to scores, biases, those by distance, and ALiBi. First what needs no work at all, then what
// is hidden in a tile. Forward and backward both mask by mask_range().
#pragma once

#include "kernels/attention/distance_bias.hpp"
#include "kernels/attention/scores.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Keys [from, from + keys) of some that begin elsewhere.
struct Range {
  std::int64_t from, keys;
};

// The block that a key lies in, and the first key behind a block.
inline std::int64_t block_at(const Problem& p, std::int64_t key) { return (p.blocks.key_start + key) / p.blocks.key; }
inline std::int64_t block_end(const Problem& p, std::int64_t block) {
  return (block + 1) * p.blocks.key - p.blocks.key_start;
}

// Whether some lane of these groups sees the keys of a block.
inline bool any_sees(const Problem& p, const QueryTile* seen, int groups, std::int64_t block) {
  const bool* before = nullptr;  // neighbours mostly share their row of blocks
  for (int g = 0; g < groups; ++g) {
    for (const bool* row : seen[g].blocks) {
      if (row && row != before && row[block * p.blocks.keep.key]) return true;
      before = row;
    }
  }
  return false;
}

// The next run of keys, from `from` on, of a range of keys that begins at key `first`: keys that some lane of these
// groups sees by its blocks. It begins and ends at a multiple of `step`; no keys when none are left.
inline Range next_run(const Problem& p, const QueryTile* seen, int groups, std::int64_t first, const Range& range,
                      std::int64_t step, std::int64_t from) {
  const std::int64_t to = range.from + range.keys;
  if (!p.blocks.keep.data) return {from, to - from};
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
inline bool sees_some(const Problem& p, const QueryTile& seen, std::int64_t first, std::int64_t last) {
  const std::int64_t from = seen.any_first > first ? seen.any_first : first;
  const std::int64_t to = seen.any_last < last ? seen.any_last : last;
  return from < to && next_run(p, &seen, 1, from, {0, to - from}, 1, 0).keys > 0;
}

// From the first to the last of `count` keys from `first` on that a group sees.
inline Range seen_range(const Problem& p, const QueryTile& seen, std::int64_t first, std::int64_t count) {
  std::int64_t from = seen.any_first > first ? seen.any_first - first : 0;
  std::int64_t to = seen.any_last < first + count ? seen.any_last - first : count;
  if (!p.blocks.keep.data) return {from, to - from};
  while (from < to && !any_sees(p, &seen, 1, block_at(p, first + from)))
    from = block_end(p, block_at(p, first + from)) - first;
  while (from < to && !any_sees(p, &seen, 1, block_at(p, first + to - 1)))
    to = block_end(p, block_at(p, first + to - 1) - 1) - first;
  return {from, to - from};
}

inline void apply_blocks(const Problem& p, const QueryTile& seen, float* s, std::int64_t first_key, std::int64_t keys) {
  for (std::int64_t j = 0, end = 0; j < keys; j = end) {
    const std::int64_t block = block_at(p, first_key + j), next = block_end(p, block) - first_key;
    end = next < keys ? next : keys;
    for (int w = 0; w < kColumns; w += kLanes) {
      std::int32_t hidden[kLanes], some = 0;
      for (int i = 0; i < kLanes; ++i) {
        const bool* row = seen.blocks[w + i];
        hidden[i] = row && !row[block * p.blocks.keep.key] ? -1 : 0;
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

template <class T, class F>
inline void for_each_cell(const Problem& p, const Grid<T>& grid, const Span& span, int group, std::int64_t first_key,
                          std::int64_t keys, F&& f) {
  for (int lane = 0; lane < kColumns && group * kColumns + lane < span.rows; ++lane) {
    const Query at = query(p, span, group * kColumns + lane);
    const T* cells = grid.data + span.batch * grid.batch + at.head * grid.head + at.token * grid.query;
    for (std::int64_t j = 0; j < keys; ++j) f(j * kColumns + lane, cells[(first_key + j) * grid.key]);
  }
}

// f(j, w, allowed) for each key and kLanes lanes of a boolean grid: all bits of a lane are set where it is true. Cells
// of four keys are read at once: a lane's bytes.
template <class F>
inline void for_each_true(const Grid<bool>& grid, const Span& span, int group, const QueryTile& seen,
                          std::int64_t first_key, std::int64_t keys, F&& f) {
  for (int w = 0; w < kColumns; w += kLanes) {
    static constexpr bool kNone[4] = {};
    const bool* cells[kLanes];
    std::int64_t step[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const bool holds = group * kColumns + w + i < span.rows;
      cells[i] = holds ? grid.data + span.batch * grid.batch + seen.head[w + i] * grid.head +
                             seen.token[w + i] * grid.query + first_key * grid.key
                       : kNone;
      step[i] = holds ? grid.key : 0;
    }
    for (std::int64_t j = 0; j < keys; j += 4) {
      const std::int64_t count = keys - j < 4 ? keys - j : 4;
      std::int32_t four[kLanes];
      if (grid.key == 1 && count == 4) {
        ATTN_UNROLL for (int i = 0; i < kLanes; ++i) __builtin_memcpy(&four[i], cells[i] + j * step[i], 4);
      } else {
        for (int i = 0; i < kLanes; ++i) {
          bool bytes[4] = {};
          for (std::int64_t k = 0; k < count; ++k) bytes[k] = cells[i][(j + k) * step[i]];
          __builtin_memcpy(&four[i], bytes, 4);
        }
      }
      VecI bits = load(four);
      for (std::int64_t k = 0; k < count; ++k, bits >>= 8) f(j + k, w, -(bits & splat(1)));
    }
  }
}

inline void apply_interval(const QueryTile& seen, float* s, std::int64_t first_key, std::int64_t keys) {
  if (seen.all_first <= first_key && first_key + keys <= seen.all_last) return;
  for (int w = 0; w < kColumns; w += kLanes) {
    const VecI first = load(seen.first + w), last = load(seen.last + w);
    for (std::int64_t j = 0; j < keys; ++j) {
      const VecI key = splat(static_cast<std::int32_t>(first_key + j));
      float* at = s + j * kColumns + w;
      store(at, ((key >= first) & (key < last)) ? load(at) : splat(kMinusInfinity));
    }
  }
}

inline void apply_alibi(const QueryTile& seen, float* s, std::int64_t first_key, std::int64_t keys) {
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec slope = load(seen.slope + w), centre = load(seen.centre + w);
    for (std::int64_t j = 0; j < keys; ++j) {
      const Vec ahead = splat(static_cast<float>(first_key + j)) - centre;
      float* at = s + j * kColumns + w;
      store(at, load(at) - slope * max(ahead, -ahead));
    }
  }
}

// A bias of -inf forbids whatever the score is, NaN too.
inline void apply_bias(const Problem& p, const Span& span, int group, std::int64_t first_key, std::int64_t keys,
                       float* s) {
  for_each_cell(p, p.bias, span, group, first_key, keys,
                [&](std::int64_t at, float bias) { s[at] = bias == kMinusInfinity ? bias : s[at] + bias * kLog2e; });
}

// Whether scores change by more than a factor, and must first be whole: scaled, in their unit.
inline bool adjusts(const Problem& p) {
  return p.softcap > 0 || p.score.forward || p.bias.data || p.distances.data || p.alibi_slopes;
}

// Whether keys are masked one by one, beside the run of keys that a query sees.
inline bool masks_cells(const Problem& p) { return p.keep.data || p.blocks.keep.data; }

// Caps scores (keys, kColumns) that lack a factor. Returns the factor that they lack then: a positive one, so that -inf
// of masks stays what it is.
inline float cap_scores(const Problem& p, std::int64_t keys, float factor, float* s) {
  if (!adjusts(p) && factor > 0) return factor;
  for (std::int64_t i = 0; factor != 1 && i < keys * kColumns; i += kLanes) store(s + i, load(s + i) * splat(factor));
  if (p.softcap > 0) apply_softcap(p, s, keys);
  return 1;
}

// From capped scores to softmax's: the user's function, then the biases; -inf where a key is masked.
inline void mask_scores(const Problem& p, const Span& span, int group, const QueryTile& seen, std::int64_t first_key,
                        std::int64_t keys, float* s) {
  if (p.score.forward) apply_score_function(p, span, group, seen, first_key, keys, s);
  if (p.bias.data) apply_bias(p, span, group, first_key, keys, s);
  if (p.distances.data) apply_distances(p, span, group, seen, s, first_key, keys);
  if (p.alibi_slopes) apply_alibi(seen, s, first_key, keys);
  if (p.keep.data) {
    for_each_true(p.keep, span, group, seen, first_key, keys, [s](std::int64_t j, int w, VecI allowed) {
      float* at = s + j * kColumns + w;
      store(at, allowed ? load(at) : splat(kMinusInfinity));
    });
  }
  if (p.blocks.keep.data) apply_blocks(p, seen, s, first_key, keys);
  apply_interval(seen, s, first_key, keys);
}

// mask_scores for a range of the `count` keys from key `first` on; those past them are masked.
inline void mask_range(const Problem& p, const Span& span, int group, const QueryTile& seen, std::int64_t first,
                       std::int64_t count, const Range& range, float* s) {
  const std::int64_t left = count - range.from, keys = range.keys < left ? range.keys : left;
  mask_scores(p, span, group, seen, first + range.from, keys, s);
  for (std::int64_t i = keys * kColumns; i < range.keys * kColumns; i += kLanes) store(s + i, splat(kMinusInfinity));
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
