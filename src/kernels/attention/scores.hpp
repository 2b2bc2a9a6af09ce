// A tile of scores, keys down and queries across, in units of log2: what is done to them before they are masked,
// softcap and the user's function.
#pragma once

#include "kernels/attention/query_tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// The unit of scores until a function of the user's, which takes natural ones, is done with them.
inline float score_unit(const Problem& p) { return p.score.forward ? 1 : kLog2e; }

// log Σ exp of scores, from Σ 2^(s - maximum). Rounded twice: weights are computed from it again, and results merged.
inline float natural_sum(float maximum, float sum) {
  constexpr double ln2 = 0x1.62e42fefa39efp-1;
  return static_cast<float>((static_cast<double>(maximum) + static_cast<double>(__builtin_log2f(sum))) * ln2);
}

// Returns what natural_sum() lost when it rounded to `rounded`; 0 where that is not finite.
inline float rest_of_natural_sum(float maximum, float sum, float rounded) {
  constexpr double ln2 = 0x1.62e42fefa39efp-1;
  if (!(rounded - rounded == 0)) return 0;
  const double whole = (static_cast<double>(maximum) + __builtin_log2(static_cast<double>(sum))) * ln2;
  return static_cast<float>(whole - static_cast<double>(rounded));
}

// Returns the factor of q when it is packed, so that scores come out in their unit; a softcap acts before that.
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

// Scores (keys, kColumns) with their places, for the user's function.
inline ScoreTile placed(const Problem& p, float* s, const Span& span, int group, const QueryTile& seen,
                        std::int64_t first_key, std::int64_t keys) {
  const std::int64_t left = span.rows - group * kColumns, queries = left < kColumns ? left : kColumns;
  return {
      s,          kColumns, 1, keys, queries, p.labels.batch + span.batch, p.labels.key + first_key, seen.head_number,
      seen.number};
}

inline void apply_score_function(const Problem& p, const Span& span, int group, const QueryTile& seen,
                                 std::int64_t first_key, std::int64_t keys, float* s) {
  const ScoreTile tile = placed(p, s, span, group, seen, first_key, keys);
  p.score.forward(&tile, p.score.user);
  for (std::int64_t i = 0; i < keys * kColumns; i += kLanes) store(s + i, load(s + i) * splat(kLog2e));
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
