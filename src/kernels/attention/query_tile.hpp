// A task's queries: groups of kColumns rows, a row in each lane. With the keys down the rows of a tile and
// the queries across its lanes, maxima, sums and masks need no horizontal step, and K and V are read in place.
#pragma once

#include "kernels/plan.hpp"
#include "kernels/query_rows.hpp"
#include "kernels/rounding.hpp"
#include "kernels/simd/elements.hpp"
#include "kernels/simd/tile.hpp"
#include "kernels/simd/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kGroups = 16;                    // groups that share each block of keys while it is in L2
constexpr int kTaskRows = kGroups * kColumns;  // queries of a task, at most

// Says where a task's rows lie.
struct Span {
  std::int64_t batch, key_head, row, rows;
};

inline Span locate(const Problem& p, const QueryTasks& tasks, std::int64_t task) {
  // Last rows first: under a causal mask they have the most keys.
  const std::int64_t row = (tasks.per_head - 1 - task % tasks.per_head) * tasks.rows;
  const std::int64_t head = task / tasks.per_head, left = rows_per_key_head(p) - row;
  return {head / p.hkv, head % p.hkv, row, least_of(left, tasks.rows)};
}

inline int groups_of(const Span& span) { return static_cast<int>((span.rows + kColumns - 1) / kColumns); }

inline Query query(const Problem& p, const Span& span, std::int64_t r) {
  return query_of_row(p, span.key_head, span.row + r);
}

// The keys that a group's lanes see.
struct QueryTile {
  std::int32_t first[kColumns], last[kColumns];  // by lane, as the rest of these
  std::int32_t head[kColumns], token[kColumns];
  // The token's and the head's, for dropout and score functions.
  std::int32_t number[kColumns], head_number[kColumns];
  float slope[kColumns], centre[kColumns];  // of ALiBi
  const bool* blocks[kColumns];             // its row of a block-sparse mask; null without, and without a query
  std::int32_t any_first, any_last;         // seen by some lane
  std::int32_t all_first, all_last;         // seen by every lane that holds a query
};

// Finite in its unit, too: at a distance of 0 it takes nothing.
inline float alibi_slope(const Problem& p, std::int64_t head) {
  constexpr float most = 3.402823466e38f;
  const float slope = p.alibi_slopes[head] * kLog2e;
  return slope > most ? most : slope < -most ? -most : slope;
}

// Fills `seen` for the queries of a group of a span.
inline void locate_queries(const Problem& p, const Span& span, int group, QueryTile& seen) {
  seen.any_first = seen.all_last = 0x7fffffff;
  seen.any_last = seen.all_first = 0;
  for (int lane = 0; lane < kColumns; ++lane) {
    const std::int64_t r = group * kColumns + lane;
    seen.first[lane] = seen.last[lane] = seen.head[lane] = seen.token[lane] = 0;
    seen.number[lane] = seen.head_number[lane] = 0;
    seen.slope[lane] = seen.centre[lane] = 0;
    seen.blocks[lane] = nullptr;
    if (r >= span.rows) continue;
    const Query place = query(p, span, r);
    seen.head[lane] = static_cast<std::int32_t>(place.head), seen.token[lane] = static_cast<std::int32_t>(place.token);
    seen.number[lane] = static_cast<std::int32_t>(p.labels.query + place.token);
    seen.head_number[lane] = static_cast<std::int32_t>(p.labels.head + place.head);
    if (p.alibi_slopes) {
      seen.slope[lane] = alibi_slope(p, place.head);
      seen.centre[lane] = static_cast<float>(p.centre[place.token]);
    }
    if (p.blocks.keep.data) {
      seen.blocks[lane] = p.blocks.keep.data + span.batch * p.blocks.keep.batch + place.head * p.blocks.keep.head +
                          (p.blocks.query_start + place.token) / p.blocks.query * p.blocks.keep.query;
    }
    const std::int32_t first = p.first[place.token], last = p.last[place.token];
    seen.first[lane] = first, seen.last[lane] = last;
    seen.all_first = first > seen.all_first ? first : seen.all_first;
    seen.all_last = last < seen.all_last ? last : seen.all_last;
    if (first >= last) continue;
    seen.any_first = first < seen.any_first ? first : seen.any_first;
    seen.any_last = last > seen.any_last ? last : seen.any_last;
  }
}

// out[c · kColumns + lane] = factor · rows(lane)[c] for a group's lanes; lanes without a query are zero. `lines` has
// kLanes rows of `width`, made up to whole vectors.
inline void pack_lanes(const Problem& p, const Rows& rows, std::int64_t width, const Span& span, int group,
                       float factor, float* lines, float* out) {
  const std::int64_t step = (width + kLanes - 1) / kLanes * kLanes;
  for (int half = 0; half < kColumns; half += kLanes) {
    const std::int64_t first = group * kColumns + half, held = span.rows - first;
    for (int i = 0; i < kLanes && i < held; ++i) {
      const Query at = query(p, span, first + i);
      widen(p.element, row(rows, p.element, span.batch, at.head, at.token), lines + i * step, width);
    }
    for (std::int64_t c = 0; c < width; c += kLanes) {
      Vec square[kLanes];
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) square[i] = i < held ? load(lines + i * step + c) : splat(0.f);
      transpose(square);
      for (int i = 0; i < kLanes && c + i < width; ++i) {
        store(out + (c + i) * kColumns + half, square[i] * splat(factor));
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
