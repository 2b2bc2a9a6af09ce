// What the backward tasks share: a span of queries, and the gradient of a tile of scores, for any core that multiplies.
// A core holds the packed operands of a task: it is made for a problem and the most keys that it will hold, and offers
//   kKeyStep                           keys a product takes at once: a range of keys begins and ends at a multiple
//   kRowStep                           rows of a group's dq likewise
//   load_keys(span, first, count)      keys and values [first, first + count), zeros up to the next kKeyStep
//   pack_queries(in, queries)          a span's rows of q and d_output, zeros past its end
//   scores(group, from, keys, s)       s (keys, kColumns), from key `from` of the loaded on; returns the factor that is
//                                      still missing
//   d_weights(group, from, keys, s)    likewise: values · d_outputᵀ
//   put(group, at, keys, tile)         keeps a group's weights and d_scores, keys `at` on of a tile of kTileKeys
//   forget(group, at, keys)            zeros instead
//   add_dq(group, from, at, keys, dq)  dqᵀ (d, kColumns) += keysᵀ · d_scores
//   add_dk, add_dv(groups, at, keys, step, out)
//                                      out, panels of (step, kColumns), += d_scores · q, weights · d_output
#pragma once

#include "kernels/unit/carver.hpp"
#include "kernels/unit/dropout.hpp"
#include "kernels/unit/scores.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kSpanGroups = 4;  // groups of queries that a tile holds side by side
constexpr int kSpanRows = kSpanGroups * kColumns;
constexpr int kTileKeys = 96;  // a multiple of every kRows, and of every core's kKeyStep

// Width of a row in panels of kColumns.
inline std::int64_t padded(std::int64_t width) { return (width + kColumns - 1) / kColumns * kColumns; }

// A span's queries, but for the rows of q and d_output, which a core holds.
struct Queries {
  float *lse, *delta;  // (kSpanRows): lse in units of log2; Σ_c d_output · output
  float *line, *other_line;
  Interval seen[kSpanGroups];
  Span span;
  int groups;

  Queries(const Problem& p, Carver& take) {
    lse = take(kSpanRows), delta = take(kSpanRows);
    line = take(p.dv), other_line = take(p.dv);
  }
};

// Groups [begin, end) of a span.
struct Groups {
  int begin, end;
  std::int64_t rows() const { return (end - begin) * kColumns; }
};

// Which keys the span sees. True when some of [first, last) are among them.
inline bool place(const Problem& p, const Span& span, std::int64_t first, std::int64_t last, Queries& queries) {
  queries.span = span;
  queries.groups = static_cast<int>((span.rows + kColumns - 1) / kColumns);
  bool sees = false;
  for (int g = 0; g < queries.groups; ++g) {
    queries.seen[g] = interval(p, span, g);
    sees = sees || sees_some(p, queries.seen[g], first, last);
  }
  return sees;
}

inline float dot(const float* a, const float* b, std::int64_t n) {
  Vec sums = splat(0.f);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sums += load(a + i) * load(b + i);
  float sum = sum_lanes(sums);
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

inline void clear(float* out, std::int64_t n) { __builtin_memset(out, 0, static_cast<std::size_t>(n) * sizeof(float)); }

// Row r of the span; null past its end.
inline const void* row_of(const Problem& p, const Rows& rows, const Span& span, std::int64_t r) {
  if (r >= span.rows) return nullptr;
  const Query at = query(p, span, r);
  return row(rows, p.element, span.batch, at.head, at.token);
}

// lse and delta; zeros in lanes without a query.
inline void pack(const Problem& p, const BackwardInput& in, Queries& queries) {
  const Span& span = queries.span;
  for (std::int64_t r = 0; r < queries.groups * kColumns; ++r) {
    queries.lse[r] = queries.delta[r] = 0;
    if (r >= span.rows) continue;
    widen(p.element, row_of(p, in.d_output, span, r), queries.line, p.dv);
    widen(p.element, row_of(p, in.output, span, r), queries.other_line, p.dv);
    queries.delta[r] = dot(queries.line, queries.other_line, p.dv);
    const Query at = query(p, span, r);
    const float lse = in.lse[(span.batch * p.hq + at.head) * p.tq + at.token];
    // Where every key is masked, 0 keeps 2^(score - lse) at 2^-inf.
    queries.lse[r] = lse == kMinusInfinity ? 0 : lse * kLog2e;
  }
}

// Working tiles of one group, (kTileKeys, kColumns) each.
struct TileScratch {
  float *scores, *d_weights;  // which become the weights after dropout, and the scores' gradient
  float *slope, *dropout;     // of the softcap; the factor of each weight
  float *before, *d_before;   // the user's function

  TileScratch(const Problem& p, Carver& take) {
    constexpr std::int64_t size = kTileKeys * kColumns;
    scores = take(size), d_weights = take(size);
    slope = take(p.softcap > 0 ? size : 0), dropout = take(drops(p) ? size : 0);
    before = take(p.score_forward ? size : 0), d_before = take(p.score_forward ? size : 0);
  }
};

// In place: weights 2^(s · factor - lse) after dropout, and the scores' gradient weight · (d_weight - delta).
template <bool Sloped, bool Dropped>
inline void tile_gradient(const TileScratch& tile, std::int64_t keys, float factor, const float* lse,
                          const float* delta) {
  const Vec scale = splat(factor);
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec log_sum = load(lse + w), mean = load(delta + w);
    for (std::int64_t at = w; at < keys * kColumns; at += kColumns) {
      const Vec weight = exp2_nonpositive(load(tile.scores + at) * scale - log_sum);
      Vec kept = weight, d_weight = load(tile.d_weights + at);
      if constexpr (Dropped) kept *= load(tile.dropout + at), d_weight *= load(tile.dropout + at);
      Vec d_score = weight * (d_weight - mean);
      if constexpr (Sloped) d_score *= load(tile.slope + at);
      store(tile.scores + at, kept);
      store(tile.d_weights + at, d_score);
    }
  }
}

// The softcap's derivative, 1 - tanh², from capped scores.
inline void softcap_slope(const Problem& p, const float* capped, std::int64_t keys, float* slope) {
  const Vec inverse = splat(1 / (p.softcap * score_unit(p)));
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) {
    const Vec t = load(capped + i) * inverse;
    store(slope + i, splat(1.f) - t * t);
  }
}

// The gradient of new scores becomes that of the scores before the user's function and, with a slope, the softcap.
inline void through_score_function(const Problem& p, const Queries& queries, int g, std::int64_t first,
                                   std::int64_t keys, const TileScratch& tile, bool sloped) {
  float* d = tile.d_before;
  __builtin_memcpy(d, tile.d_weights, static_cast<std::size_t>(keys * kColumns) * sizeof(float));
  const ScoreTile before = placed(tile.before, queries.span, g, queries.seen[g], first, keys);
  p.score_backward(&before, d, p.score_user);
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) {
    float* at = tile.d_weights + i;
    const Vec changed = sloped ? load(d + i) * load(tile.slope + i) : load(d + i);
    store(at, load(at) == splat(0.f) ? splat(0.f) : changed);
  }
}

// Group g against a range of the `count` keys that the core has from key `first` on. Leaves in the tile weights after
// dropout and the gradient of the scores: before softcap and user's function, or (not ThroughCap) after them, which is
// the bias's.
template <bool ThroughCap, class Core>
inline void gradient_tile(Core& core, const Problem& p, const Queries& queries, int g, std::int64_t first,
                          std::int64_t count, const Range& range, const TileScratch& tile) {
  const float factor = capped_scores(core, p, g, range, tile.scores);
  const bool sloped = ThroughCap && p.softcap > 0, dropped = drops(p), called = ThroughCap && p.score_forward;
  const std::int64_t left = count - range.from, keys = range.keys < left ? range.keys : left;
  if (sloped) softcap_slope(p, tile.scores, range.keys, tile.slope);
  if (called) __builtin_memcpy(tile.before, tile.scores, static_cast<std::size_t>(keys * kColumns) * sizeof(float));
  mask_range(p, queries.span, g, queries.seen[g], first, count, range, tile.scores);
  core.d_weights(g, range.from, range.keys, tile.d_weights);
  if (dropped) {
    clear(tile.dropout + keys * kColumns, (range.keys - keys) * kColumns);
    for_each_kept(p, queries.span, g, queries.seen[g], first + range.from, keys, [&](std::int64_t j, int w, VecI kept) {
      store(tile.dropout + j * kColumns + w, where(kept, splat(p.dropout_factor)));
    });
  }
  const bool slope_now = sloped && !called;
  const auto gradient = slope_now ? (dropped ? tile_gradient<true, true> : tile_gradient<true, false>)
                                  : (dropped ? tile_gradient<false, true> : tile_gradient<false, false>);
  gradient(tile, range.keys, factor, queries.lse + g * kColumns, queries.delta + g * kColumns);
  if (called) through_score_function(p, queries, g, first + range.from, keys, tile, sloped);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
