// A bias by distance. Queries in a row have their numbers in a row: a vector of lanes is a vector of the table, which
// holds repetitions past its ends.
#pragma once

#include "kernels/attention/scores.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

static_assert(kLanes <= DistanceBias::kPad);

inline std::int64_t clamp(std::int64_t x, std::int64_t low, std::int64_t high) {
  return x < low ? low : x > high ? high : x;
}

// Whether kLanes lanes hold one head's queries in a row.
inline bool in_a_row(const QueryTile& seen, int lane) {
  const int last = lane + kLanes - 1;
  return seen.head[last] == seen.head[lane] && seen.token[last] - seen.token[lane] == kLanes - 1;
}

// How far a key is behind the query of a lane.
inline std::int64_t behind(const Problem& p, const QueryTile& seen, int lane, std::int64_t key) {
  return p.centre[seen.token[lane]] - key;
}

// row(lane, first) for kLanes queries in a row from a lane on, of which that lane's is `first` behind the first key;
// else one(lane, first) for each.
template <class Row, class One>
inline void for_each_row_of_lanes(const Problem& p, const Span& span, int group, const QueryTile& seen,
                                  std::int64_t first_key, Row&& row, One&& one) {
  const std::int64_t held = span.rows - group * kColumns;
  for (int w = 0; w < kColumns && w < held; w += kLanes) {
    if (in_a_row(seen, w)) {
      row(w, behind(p, seen, w, first_key));
      continue;
    }
    for (int lane = w; lane < w + kLanes && lane < held; ++lane) one(lane, behind(p, seen, lane, first_key));
  }
}

// To scores (keys, kColumns).
inline void apply_distances(const Problem& p, const Span& span, int group, const QueryTile& seen, float* s,
                            std::int64_t first_key, std::int64_t keys) {
  const DistanceBias& bias = p.distances;
  // A number of -inf forbids whatever the score is.
  const auto sum = [](Vec score, Vec number) { return number == splat(kMinusInfinity) ? number : score + number; };
  for_each_row_of_lanes(
      p, span, group, seen, first_key,
      [&](int w, std::int64_t first) {
        const float* table = bias.data + seen.head[w] * bias.head;
        for (std::int64_t j = 0; j < keys; ++j) {
          float* at = s + j * kColumns + w;
          store(at, sum(load(at), load(table + clamp(first - j, bias.low - kLanes, bias.high))));
        }
      },
      [&](int lane, std::int64_t first) {
        const float* table = bias.data + seen.head[lane] * bias.head;
        for (std::int64_t j = 0; j < keys; ++j) {
          float& at = s[j * kColumns + lane];
          at = sum(splat(at), splat(table[clamp(first - j, bias.low, bias.high)]))[0];
        }
      });
}

// Adds the gradient of such scores to the sums of an item. Keys that share a number are summed first: fewer roundings
// in the long sums.
inline void add_to_distances(const Problem& p, const Span& span, int group, const QueryTile& seen,
                             const float* d_scores, std::int64_t first_key, std::int64_t keys, float* sums) {
  const DistanceBias& bias = p.distances;
  for_each_row_of_lanes(
      p, span, group, seen, first_key,
      [&](int w, std::int64_t first) {
        float* table = sums + seen.head[w] * bias.head;
        std::int64_t at = clamp(first, bias.low - kLanes, bias.high);
        Vec sum = splat(0.f);
        for (std::int64_t j = 0; j < keys; ++j) {
          const std::int64_t next = clamp(first - j, bias.low - kLanes, bias.high);
          if (next != at) {
            store(table + at, load(table + at) + sum);
            at = next, sum = splat(0.f);
          }
          sum += load(d_scores + j * kColumns + w);
        }
        store(table + at, load(table + at) + sum);
      },
      [&](int lane, std::int64_t first) {
        float* table = sums + seen.head[lane] * bias.head;
        for (std::int64_t j = 0; j < keys; ++j)
          table[clamp(first - j, bias.low, bias.high)] += d_scores[j * kColumns + lane];
      });
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
