// A tile of scores, keys down and queries across, in units of log2: from q and k to what softmax takes.
#pragma once

#include "kernels/attention/blocks.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Scores are in units of log2, as soon as a function of the user's, which takes natural ones, is done with them.
inline float score_unit(const Problem& p) { return p.score_forward ? 1 : kLog2e; }

// What q is multiplied by when packed, so that scores come out in their unit; a softcap acts before that.
inline float query_factor(const Problem& p) { return p.softcap > 0 ? p.scale / p.softcap : p.scale * score_unit(p); }

// tanh, to about 2 ulp: its series near 0, (1 - e^-2x) / (1 + e^-2x) elsewhere.
inline __attribute__((always_inline)) Vec tanh(Vec x) {
  const Vec zero = splat(0.f), magnitude = x < zero ? -x : x;
  const Vec e = exp2_nonpositive(magnitude * splat(-2 * kLog2e));
  const Vec far = (splat(1.f) - e) / (splat(1.f) + e);
  const Vec y = magnitude * magnitude;
  Vec series = splat(62.f / 2835.f);
  series = series * y + splat(-17.f / 315.f);
  series = series * y + splat(2.f / 15.f);
  series = series * y + splat(-1.f / 3.f);
  series = series * y * magnitude + magnitude;
  const Vec t = magnitude < splat(0.25f) ? series : far;
  return x < zero ? -t : t;
}

inline void apply_softcap(const Problem& p, float* s, std::int64_t keys) {
  const Vec cap = splat(p.softcap * score_unit(p));
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) store(s + i, cap * tanh(load(s + i)));
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
inline void for_each_true(const Grid<bool>& grid, const Span& span, int group, const Interval& seen,
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

inline void apply_interval(const Interval& seen, float* s, std::int64_t first_key, std::int64_t keys) {
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

// Scores (keys, kColumns) with their places, for the user's function.
inline ScoreTile placed(const Problem& p, float* s, const Span& span, int group, const Interval& seen,
                        std::int64_t first_key, std::int64_t keys) {
  const std::int64_t left = span.rows - group * kColumns, queries = left < kColumns ? left : kColumns;
  return {s, kColumns, 1, keys, queries, p.first_batch + span.batch, p.first_key + first_key, seen.head, seen.number};
}

inline void apply_score_function(const Problem& p, const Span& span, int group, const Interval& seen,
                                 std::int64_t first_key, std::int64_t keys, float* s) {
  const ScoreTile tile = placed(p, s, span, group, seen, first_key, keys);
  p.score_forward(&tile, p.score_user);
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) store(s + i, load(s + i) * splat(kLog2e));
}

// Whether scores change by more than a factor, and must first be whole: scaled, in their unit.
inline bool adjusts(const Problem& p) { return p.softcap > 0 || p.score_forward || p.bias.data || p.alibi_slopes; }

inline void apply_alibi(const Interval& seen, float* s, std::int64_t first_key, std::int64_t keys) {
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec slope = load(seen.slope + w), centre = load(seen.centre + w);
    for (std::int64_t j = 0; j < keys; ++j) {
      const Vec ahead = splat(static_cast<float>(first_key + j)) - centre;
      float* at = s + j * kColumns + w;
      store(at, load(at) - slope * max(ahead, -ahead));
    }
  }
}

// From capped scores to softmax's: the user's function, then the biases; -inf where a key is masked.
inline void mask_scores(const Problem& p, const Span& span, int group, const Interval& seen, std::int64_t first_key,
                        std::int64_t keys, float* s) {
  if (p.score_forward) apply_score_function(p, span, group, seen, first_key, keys, s);
  if (p.bias.data) {
    for_each_cell(p, p.bias, span, group, first_key, keys,
                  [s](std::int64_t at, float bias) { s[at] += bias * kLog2e; });
  }
  if (p.alibi_slopes) apply_alibi(seen, s, first_key, keys);
  if (p.keep.data) {
    for_each_true(p.keep, span, group, seen, first_key, keys, [s](std::int64_t j, int w, VecI allowed) {
      float* at = s + j * kColumns + w;
      store(at, allowed ? load(at) : splat(kMinusInfinity));
    });
  }
  if (p.blocks.data) apply_blocks(p, seen, s, first_key, keys);
  apply_interval(seen, s, first_key, keys);
}

// Caps scores (keys, kColumns) that lack a factor. Returns the factor that they lack then.
inline float cap_scores(const Problem& p, std::int64_t keys, float factor, float* s) {
  if (!adjusts(p)) return factor;
  for (std::int64_t i = 0; factor != 1 && i < keys * kColumns; i += kLanes) store(s + i, load(s + i) * splat(factor));
  if (p.softcap > 0) apply_softcap(p, s, keys);
  return 1;
}

// s (keys, kColumns): a core's scores of a range of its keys, capped. Returns the factor that they still lack. A core
// may take something more, to do beside its products.
template <class Core, class... Beside>
inline float capped_scores(Core& core, const Problem& p, int group, const Range& range, float* s, Beside&... beside) {
  return cap_scores(p, range.keys, core.scores(group, range.from, range.keys, s, beside...), s);
}

// mask_scores for a range of the `count` keys from key `first` on; those past them are masked.
inline void mask_range(const Problem& p, const Span& span, int group, const Interval& seen, std::int64_t first,
                       std::int64_t count, const Range& range, float* s) {
  const std::int64_t left = count - range.from, keys = range.keys < left ? range.keys : left;
  mask_scores(p, span, group, seen, first + range.from, keys, s);
  for (std::int64_t i = keys * kColumns; i < range.keys * kColumns; i += kLanes) store(s + i, splat(kMinusInfinity));
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
