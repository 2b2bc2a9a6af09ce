// The backward tasks share this: a span of queries, and the gradient of a tile of scores, for any core that multiplies.
#pragma once

#include "kernels/attention/dropout.hpp"
#include "kernels/attention/mask.hpp"
#include "kernels/prefetch.hpp"
#include "kernels/table.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kMostGroups = 16;  // of queries, in a span

// Width of a row in panels of kColumns.
inline std::int64_t padded(std::int64_t width) { return (width + kColumns - 1) / kColumns * kColumns; }

// A span's queries, but for the rows of q and d_output, which a core holds.
struct Queries {
  float *lse, *delta;  // by row, as of RowSums
  QueryTile seen[kMostGroups];
  Span span;
  int groups;

  Queries(std::int64_t rows, Workspace& take) { lse = take(rows), delta = take(rows); }
};

// Groups [begin, end) of a span.
struct Groups {
  int begin, end;
  std::int64_t rows() const { return (end - begin) * kColumns; }
};

// Holds the packed operands of a task: made for a problem and the most keys that it will hold. Keys are counted from
// the first one loaded, `at` from the first one of a tile.
template <class Core>
concept GradientCore = requires(Core core, const Span& span, const BackwardInput& in, const Queries& queries,
                                const PrefetchRows& rows, const Groups& groups, int group, std::int64_t n, bool fresh,
                                float* out, Vec x, const Vec (&tile)[Core::kKeyRows][kWidth]) {
  Core::kSpanGroups;               // groups of queries that a tile holds side by side, kMostGroups at most
  Core::kTileKeys;                 // keys that dq takes at once
  Core::kStripKeys;                // of them, those whose dk and dv are taken at once: a multiple of every kRows
  Core::kKeyStep;                  // keys a product takes at once: a range of keys begins and ends at a multiple
  Core::kKeyRows;                  // keys that are put at once
  Core::kRowStep;                  // rows of a group's dq that a product takes at once
  core.load_keys(span, n, n);      // `count` keys and values from one on, zeros up to the next kKeyStep
  core.pack_queries(in, queries);  // a span's rows of q and d_output, zeros past its end
  core.fetch(rows, n);             // beside the products of so many keys by a group of queries
  // (group, from, keys, s, d_weights): s (keys, kColumns), and d_weights = values · d_outputᵀ; the factor that s lacks.
  requires __is_same(decltype(core.products(group, n, n, out, out)), float);
  requires __is_same(decltype(Core::exp2(x)), Vec);  // 2^x, good enough for its products
  // (group, at, weights, d_scores) of kKeyRows keys; add_dk and add_dv read them while their strip is the last put.
  core.put(group, n, tile, tile);
  core.put_zeros(group, n, n);              // (group, at, keys)
  core.add_dq(group, n, n, n, fresh, out);  // (group, from, at, keys): dqᵀ (d, kColumns) += keysᵀ · d_scores; fresh: =
  core.add_dk(groups, n, n, n, out);        // (groups, at, keys, step): panels of (step, kColumns) += d_scores · q
  core.add_dv(groups, n, n, n, out);        // += weights · d_output
};

template <GradientCore Core>
constexpr std::int64_t span_rows() {
  static_assert(Core::kSpanGroups <= kMostGroups && Core::kTileKeys % Core::kStripKeys == 0);
  return Core::kSpanGroups * kColumns;
}

// Finds which keys the span sees. Returns true when some of [first, last) are among them.
inline bool place(const Problem& p, const Span& span, std::int64_t first, std::int64_t last, Queries& queries) {
  queries.span = span;
  queries.groups = groups_of(span);
  bool sees = false;
  for (int g = 0; g < queries.groups; ++g) {
    locate_queries(p, span, g, queries.seen[g]);
    sees = sees || sees_some(p, queries.seen[g], first, last);
  }
  return sees;
}

// Whether one of a span's rows [from, from + rows) may see one of the keys [first, last), by its interval: much faster
// than place(), for the many spans that see nothing of a step of keys.
inline bool may_see(const Problem& p, const Span& span, std::int64_t from, std::int64_t rows, std::int64_t first,
                    std::int64_t last) {
  const std::int64_t begin = (span.row + from) % p.tq, end = begin + least_of(span.rows - from, rows);
  if (end > p.tq) return true;  // queries of two heads
  std::int32_t count = 0;       // g++ makes vectors of a count
  for (std::int64_t i = begin; i < end; ++i) {
    count += (p.first[i] < last) & (p.last[i] > first) & (p.first[i] < p.last[i]);
  }
  return count > 0;
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

// Every query needs these beside its rows. They lie as the forward's lse does, (b, hq, tq), a key head's rows in a run.
struct RowSums {
  float *lse, *delta;  // lse in units of log2; Σ_c d_output · output

  RowSums(const Problem& p, Workspace& take) {
    const std::int64_t rows = p.batch * p.hq * p.tq;
    lse = take(rows), delta = take(rows);
  }

  static std::int64_t place(const Problem& p, const Span& span) {
    return (span.batch * p.hkv + span.key_head) * rows_per_key_head(p) + span.row;
  }
};

// Computes the sums of a span's rows. `lines` has room for at least 2 rows of dv.
inline void sum_rows(const Problem& p, const BackwardInput& in, const Span& span, const RowSums& sums, float* lines) {
  const std::int64_t first = RowSums::place(p, span);
  for (std::int64_t r = 0; r < span.rows; ++r) {
    widen(p.element, row_of(p, in.d_output, span, r), lines, p.dv);
    widen(p.element, row_of(p, in.output, span, r), lines + p.dv, p.dv);
    sums.delta[first + r] = dot(lines, lines + p.dv, p.dv);
    const Query at = query(p, span, r);
    const float lse = in.lse[(span.batch * p.hq + at.head) * in.lse_head + at.token];
    // Where every key is masked, 0 keeps 2^(score - lse) at 2^-inf.
    sums.lse[first + r] = lse == kMinusInfinity ? 0 : lse * kLog2e;
  }
}

// A span's sums; zeros in lanes without a query.
inline void pack(const Problem& p, const RowSums& sums, Queries& queries) {
  const std::int64_t first = RowSums::place(p, queries.span), rows = queries.span.rows;
  clear(queries.lse, queries.groups * kColumns), clear(queries.delta, queries.groups * kColumns);
  __builtin_memcpy(queries.lse, sums.lse + first, static_cast<std::size_t>(rows) * sizeof(float));
  __builtin_memcpy(queries.delta, sums.delta + first, static_cast<std::size_t>(rows) * sizeof(float));
}

// Says whether the gradient of the scores after the softcap is needed, too.
inline bool in_steps(const Problem& p) { return p.score.forward || p.distances.data; }
inline bool keeps_before(const Problem& p) { return p.score.forward || (p.distances.data && p.softcap > 0); }

// Working tiles of one group, (keys, kColumns) each.
struct TileScratch {
  float *scores, *d_weights;   // which become the weights after dropout, and the scores' gradient
  float *slope, *dropout;      // of the softcap; the factor of each weight
  float *before, *d_before;    // capped scores, for the slope and the user's function; the gradient of this
  float* distances = nullptr;  // an item's sums of the gradient by distance, where they are asked for

  TileScratch(const Problem& p, std::int64_t keys, Workspace& take) {
    const std::int64_t size = keys * kColumns;
    scores = take(size), d_weights = take(size);
    slope = take(p.softcap > 0 ? size : 0), dropout = take(drops(p) ? size : 0);
    before = take(keeps_before(p) ? size : 0), d_before = take(p.score.forward ? size : 0);
  }
};

// Hands to a sink, from `at` on, weights 2^(s · factor - lse) after dropout, and the scores' gradient,
// weight · (d_weight - delta).
template <bool Sloped, bool Dropped, class Sink>
inline void put_gradient(const Sink& sink, const TileScratch& tile, const Queries& queries, int g, std::int64_t at,
                         std::int64_t keys, float factor) {
  const Vec scale = splat(factor);
  Vec lse[kWidth], delta[kWidth];
  ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
    lse[w] = load(queries.lse + g * kColumns + w * kLanes);
    delta[w] = load(queries.delta + g * kColumns + w * kLanes);
  }
  for (std::int64_t j = 0; j < keys; j += Sink::kKeyRows) {
    Vec weights[Sink::kKeyRows][kWidth], d_scores[Sink::kKeyRows][kWidth];
    ATTN_UNROLL for (int i = 0; i < Sink::kKeyRows; ++i) {
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        const std::int64_t cell = (j + i) * kColumns + w * kLanes;
        const Vec weight = Sink::exp2(load(tile.scores + cell) * scale - lse[w]);
        Vec kept = weight, d_weight = load(tile.d_weights + cell);
        if constexpr (Dropped) kept *= load(tile.dropout + cell), d_weight *= load(tile.dropout + cell);
        Vec d_score = weight * (d_weight - delta[w]);
        if constexpr (Sloped) d_score *= load(tile.slope + cell);
        weights[i][w] = kept, d_scores[i][w] = d_score;
      }
    }
    sink.put(g, at + j, weights, d_scores);
  }
}

// A sink that leaves weights and gradient in the tile, in float32.
template <GradientCore Core>
struct InTile {
  static constexpr int kKeyRows = Core::kKeyRows;
  const TileScratch& tile;

  static __attribute__((always_inline)) Vec exp2(Vec x) { return Core::exp2(x); }

  void put(int, std::int64_t at, const Vec (&weights)[kKeyRows][kWidth],
           const Vec (&d_scores)[kKeyRows][kWidth]) const {
    __builtin_memcpy(tile.scores + at * kColumns, weights, sizeof weights);
    __builtin_memcpy(tile.d_weights + at * kColumns, d_scores, sizeof d_scores);
  }
};

// Copies such a tile to a core.
template <GradientCore Core>
inline void copy_tile(const TileScratch& tile, const Core& core, int group, std::int64_t at, std::int64_t keys) {
  for (std::int64_t j = 0; j < keys; j += Core::kKeyRows) {
    Vec weights[Core::kKeyRows][kWidth], d_scores[Core::kKeyRows][kWidth];
    __builtin_memcpy(weights, tile.scores + j * kColumns, sizeof weights);
    __builtin_memcpy(d_scores, tile.d_weights + j * kColumns, sizeof d_scores);
    core.put(group, at + j, weights, d_scores);
  }
}

// The softcap's derivative, 1 - tanh², from capped scores; 0 where they are NaN, as their weights are, if any.
inline void softcap_slope(const Problem& p, const float* capped, std::int64_t keys, float* slope) {
  const Vec inverse = splat(1 / (p.softcap * score_unit(p)));
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) {
    const Vec t = load(capped + i) * inverse, derivative = splat(1.f) - t * t;
    store(slope + i, derivative > splat(0.f) ? derivative : splat(0.f));
  }
}

// The gradient of new scores becomes that of the scores before the user's function and, with a slope, the softcap.
inline void through_score_function(const Problem& p, const Queries& queries, int g, std::int64_t first,
                                   std::int64_t keys, const TileScratch& tile, bool sloped) {
  float* d = tile.d_before;
  __builtin_memcpy(d, tile.d_weights, static_cast<std::size_t>(keys * kColumns) * sizeof(float));
  const ScoreTile before = placed(p, tile.before, queries.span, g, queries.seen[g], first, keys);
  p.score.backward(&before, d, p.score.user);
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) {
    float* at = tile.d_weights + i;
    const Vec changed = sloped ? load(d + i) * load(tile.slope + i) : load(d + i);
    store(at, load(at) == splat(0.f) ? splat(0.f) : changed);
  }
}

// Weights of zero, masked or dropped, take nothing from their gradients, which may be infinite or NaN.
inline void hide_gradients(const TileScratch& tile, std::int64_t keys, bool dropped) {
  const auto hide = [&](const float* from, float zero) {
    for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) {
      float* d = tile.d_weights + i;
      store(d, load(from + i) == splat(zero) ? splat(0.f) : load(d));
    }
  };
  hide(tile.scores, kMinusInfinity);
  if (dropped) hide(tile.dropout, 0);
}

// Group g against a range of the `count` keys that the core has from key `first` on: weights after dropout and the
// gradient of the scores go to the sink, from `at` on. ThroughCap: that of the scores before the softcap.
template <bool ThroughCap, GradientCore Core, class Sink>
inline void gradient_tile(Core& core, const Problem& p, const Queries& queries, int g, std::int64_t first,
                          std::int64_t count, const Range& range, const TileScratch& tile, const Sink& sink,
                          std::int64_t at) {
  const float lacks = core.products(g, range.from, range.keys, tile.scores, tile.d_weights);
  const float factor = cap_scores(p, range.keys, lacks, tile.scores);
  const bool sloped = ThroughCap && p.softcap > 0, dropped = drops(p);
  const std::int64_t left = count - range.from, keys = range.keys < left ? range.keys : left;
  if (sloped) softcap_slope(p, tile.scores, range.keys, tile.slope);
  if (keeps_before(p)) {
    __builtin_memcpy(tile.before, tile.scores, static_cast<std::size_t>(keys * kColumns) * sizeof(float));
  }
  mask_range(p, queries.span, g, queries.seen[g], first, count, range, tile.scores);
  if (dropped) {
    clear(tile.dropout + keys * kColumns, (range.keys - keys) * kColumns);
    for_each_kept(p, queries.span, g, queries.seen[g], first + range.from, keys, [&](std::int64_t j, int w, VecI kept) {
      store(tile.dropout + j * kColumns + w, where(kept, splat(p.dropout.factor)));
    });
  }
  if (p.bias.data) hide_gradients(tile, range.keys, dropped);  // the bias's pass computes what nobody sees, too
  const auto put = sloped ? (dropped ? put_gradient<true, true, Sink> : put_gradient<true, false, Sink>)
                          : (dropped ? put_gradient<false, true, Sink> : put_gradient<false, false, Sink>);
  put(sink, tile, queries, g, at, range.keys, factor);
}

// Hands the core the same for the scores before softcap and user's function. That function and the sums by distance
// see the gradient in float32, and without the slope.
template <GradientCore Core>
inline void put_tile(Core& core, const Problem& p, const Queries& queries, int g, std::int64_t first,
                     std::int64_t count, const Range& range, const TileScratch& tile, std::int64_t at) {
  if (!in_steps(p)) {
    return gradient_tile<true>(core, p, queries, g, first, count, range, tile, core, at);
  }
  gradient_tile<false>(core, p, queries, g, first, count, range, tile, InTile<Core>{tile}, 0);
  const std::int64_t left = count - range.from, keys = range.keys < left ? range.keys : left, key = first + range.from;
  if (tile.distances) add_to_distances(p, queries.span, g, queries.seen[g], tile.d_weights, key, keys, tile.distances);
  if (p.softcap > 0) softcap_slope(p, tile.before, keys, tile.slope);
  if (p.score.forward) {
    through_score_function(p, queries, g, key, keys, tile, p.softcap > 0);
  } else if (p.softcap > 0) {
    for (std::int64_t i = 0; i < keys * kColumns; i += kLanes)
      store(tile.d_weights + i, load(tile.d_weights + i) * load(tile.slope + i));
  }
  copy_tile(tile, core, g, at, range.keys);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
