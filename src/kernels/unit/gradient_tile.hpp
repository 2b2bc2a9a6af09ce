// What the backward tasks share: a span of queries made ready for products, and the gradient of a tile of scores.
#pragma once

#include "kernels/unit/carver.hpp"
#include "kernels/unit/dropout.hpp"
#include "kernels/unit/scores.hpp"
#include "kernels/unit/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kSpanGroups = 4;  // groups of queries that a tile holds side by side
constexpr int kSpanRows = kSpanGroups * kColumns;
constexpr int kTileKeys = 96;              // a multiple of every kRows
constexpr int kTileStep = kSpanRows + 16;  // of a wide tile's rows; the odd 64 bytes spread them over the cache

// Width of a row in panels of kColumns.
inline std::int64_t padded(std::int64_t width) { return (width + kColumns - 1) / kColumns * kColumns; }

// A span's queries and its rows of d_output.
struct Queries {
  float *q, *d_output;            // by group: (padded width, kColumns), the right operands of scores and d_weights
  float *q_rows, *d_output_rows;  // by panel: (kSpanRows, kColumns), the right operands of dk and dv
  float *lse, *delta;             // (kSpanRows): lse in units of log2; Σ_c d_output · output
  float *line, *other_line;
  Interval seen[kSpanGroups];
  Span span;
  int groups;

  Queries(const Problem& p, Carver& take) {
    q = take(padded(p.d) * kSpanRows), d_output = take(padded(p.dv) * kSpanRows);
    q_rows = take(padded(p.d) * kSpanRows), d_output_rows = take(padded(p.dv) * kSpanRows);
    lse = take(kSpanRows), delta = take(kSpanRows);
    line = take(padded(p.d > p.dv ? p.d : p.dv)), other_line = take(padded(p.dv));
  }
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

// A row of `width` to row r of the panels, zeros past its end.
inline void to_panels(float* line, std::int64_t width, std::int64_t r, float* panels) {
  for (std::int64_t c = width; c < padded(width); ++c) line[c] = 0;
  for (std::int64_t c = 0; c < width; c += kColumns)
    __builtin_memcpy(panels + c * kSpanRows + r * kColumns, line + c, kColumns * sizeof(float));
}

inline void clear(float* out, std::int64_t n) { __builtin_memset(out, 0, static_cast<std::size_t>(n) * sizeof(float)); }

// Panels of rows to groups of lanes, times `factor`: out[c · kColumns + lane].
inline void to_lanes(const float* panels, std::int64_t width, int groups, float factor, float* out) {
  for (std::int64_t c = 0; c < padded(width); c += kLanes) {
    const float* panel = panels + c / kColumns * kColumns * kSpanRows + c % kColumns;
    for (std::int64_t r = 0; r < groups * kColumns; r += kLanes) {
      Vec square[kLanes];
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) square[i] = load(panel + (r + i) * kColumns);
      transpose(square);
      float* group = out + r / kColumns * kColumns * padded(width) + r % kColumns;
      ATTN_UNROLL for (int i = 0; i < kLanes; ++i) store(group + (c + i) * kColumns, square[i] * splat(factor));
    }
  }
}

// Lanes without a query have zeros throughout, so that they add nothing.
inline void pack(const Problem& p, const BackwardInput& in, Queries& queries) {
  const Span& span = queries.span;
  for (std::int64_t r = 0; r < queries.groups * kColumns; ++r) {
    if (r >= span.rows) {
      clear(queries.line, padded(p.d > p.dv ? p.d : p.dv));
      to_panels(queries.line, p.d, r, queries.q_rows);
      to_panels(queries.line, p.dv, r, queries.d_output_rows);
      queries.lse[r] = queries.delta[r] = 0;
      continue;
    }
    const Query at = query(p, span, r);
    widen(p.element, row(p.q, p.element, span.batch, at.head, at.token), queries.line, p.d);
    to_panels(queries.line, p.d, r, queries.q_rows);
    widen(p.element, row(in.d_output, p.element, span.batch, at.head, at.token), queries.line, p.dv);
    to_panels(queries.line, p.dv, r, queries.d_output_rows);
    widen(p.element, row(in.output, p.element, span.batch, at.head, at.token), queries.other_line, p.dv);
    queries.delta[r] = dot(queries.line, queries.other_line, p.dv);
    const float lse = in.lse[(span.batch * p.hq + at.head) * p.tq + at.token];
    // Where every key is masked, 0 keeps 2^(score - lse) at 2^-inf.
    queries.lse[r] = lse == kMinusInfinity ? 0 : lse * kLog2e;
  }
  to_lanes(queries.q_rows, p.d, queries.groups, query_factor(p), queries.q);
  to_lanes(queries.d_output_rows, p.dv, queries.groups, 1, queries.d_output);
}

// Working tiles of one group, (kTileKeys, kColumns) each.
struct TileScratch {
  float *scores, *d_weights, *slope, *dropout, *before;  // before: the user's function

  TileScratch(const Problem& p, Carver& take) {
    constexpr std::int64_t size = kTileKeys * kColumns;
    scores = take(size), d_weights = take(size);
    slope = take(p.softcap > 0 ? size : 0), dropout = take(drops(p) ? size : 0);
    before = take(p.score_forward ? size : 0);
  }
};

// weights 2^(s - lse) after dropout, and the scores' gradient weight · (d_weight - delta), into rows of kTileStep.
template <bool Sloped, bool Dropped>
inline void tile_gradient(const TileScratch& tile, std::int64_t keys, const float* lse, const float* delta,
                          float* weights, float* d_scores) {
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec log_sum = load(lse + w), mean = load(delta + w);
    for (std::int64_t j = 0; j < keys; ++j) {
      const std::int64_t at = j * kColumns + w;
      const Vec weight = exp2_nonpositive(load(tile.scores + at) - log_sum);
      Vec kept = weight, d_weight = load(tile.d_weights + at);
      if constexpr (Dropped) kept *= load(tile.dropout + at), d_weight *= load(tile.dropout + at);
      Vec d_score = weight * (d_weight - mean);
      if constexpr (Sloped) d_score *= load(tile.slope + at);
      store(weights + j * kTileStep + w, kept);
      store(d_scores + j * kTileStep + w, d_score);
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
                                   std::int64_t keys, const TileScratch& tile, bool sloped, float* d_scores) {
  float* d = tile.d_weights;  // no longer needed
  for (std::int64_t j = 0; j < keys; ++j)
    __builtin_memcpy(d + j * kColumns, d_scores + j * kTileStep, kColumns * sizeof(float));
  const ScoreTile before = placed(tile.before, queries.span, g, queries.seen[g], first, keys);
  p.score_backward(&before, d, p.score_user);
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) {
    float* at = d_scores + i / kColumns * kTileStep + i % kColumns;
    const Vec changed = sloped ? load(d + i) * load(tile.slope + i) : load(d + i);
    store(at, load(at) == splat(0.f) ? splat(0.f) : changed);
  }
}

// Group g against keys [first, first + keys), whose rows are at k and v: weights after dropout and the gradient
// of the scores: before softcap and user's function, or (not ThroughCap) after them, which is the bias's.
template <bool ThroughCap>
inline void gradient_tile(const Problem& p, const Queries& queries, int g, const Block& k, const Block& v,
                          std::int64_t first, std::int64_t keys, const TileScratch& tile, float* weights,
                          float* d_scores) {
  capped_scores(p, queries.q + g * padded(p.d) * kColumns, k.data, k.step, keys, tile.scores);
  const bool sloped = ThroughCap && p.softcap > 0, dropped = drops(p), called = ThroughCap && p.score_forward;
  if (sloped) softcap_slope(p, tile.scores, keys, tile.slope);
  if (called) __builtin_memcpy(tile.before, tile.scores, static_cast<std::size_t>(keys * kColumns) * sizeof(float));
  mask_scores(p, queries.span, g, queries.seen[g], first, keys, tile.scores);
  panel<false>(keys, v.data, v.step, 1, queries.d_output + g * padded(p.dv) * kColumns, kColumns, tile.d_weights,
               kColumns, p.dv);
  if (dropped) {
    for_each_kept(p, queries.span, g, queries.seen[g], first, keys, [&](std::int64_t j, int w, VecI kept) {
      store(tile.dropout + j * kColumns + w, where(kept, splat(p.dropout_factor)));
    });
  }
  const float *lse = queries.lse + g * kColumns, *delta = queries.delta + g * kColumns;
  if (called) {
    if (dropped) tile_gradient<false, true>(tile, keys, lse, delta, weights, d_scores);
    if (!dropped) tile_gradient<false, false>(tile, keys, lse, delta, weights, d_scores);
    return through_score_function(p, queries, g, first, keys, tile, sloped, d_scores);
  }
  if (sloped && dropped) return tile_gradient<true, true>(tile, keys, lse, delta, weights, d_scores);
  if (sloped) return tile_gradient<true, false>(tile, keys, lse, delta, weights, d_scores);
  if (dropped) return tile_gradient<false, true>(tile, keys, lse, delta, weights, d_scores);
  tile_gradient<false, false>(tile, keys, lse, delta, weights, d_scores);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
