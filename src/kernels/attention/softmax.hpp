// Online softmax (Milakov and Gimelshein 2018): the running maximum and sum of a group's queries, and the context that
// follows them. bf16/softmax.hpp does the same beside products of tiles.
#pragma once

#include "kernels/attention/query_tile.hpp"
#include "kernels/attention/scores.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// A group's running state, each (…, kColumns).
struct Running {
  float *maximum, *sum;  // 1 row each: the score that is subtracted, and Σ 2^(s - maximum)
  float* context;        // dv rows, made up to a multiple of 16: Σ 2^(s - maximum) · v
  bool fresh = true;     // nothing was added to the context yet, which may hold any numbers
};

inline void clear(const Running& run) {
  for (int lane = 0; lane < kColumns; ++lane) run.maximum[lane] = kMinusInfinity, run.sum[lane] = 0;
}

// A sink is a score that was met before any key. A maximum is a whole number where softmax wants it so
// (bf16/softmax.hpp).
inline void start_with_sinks(const Problem& p, const QueryTile& seen, const Running& run) {
  for (int lane = 0; lane < kColumns; ++lane) {
    const float sink = p.sinks[seen.head[lane]] * kLog2e, maximum = __builtin_ceilf(sink);
    run.maximum[lane] = maximum;
    const float weight = sink == maximum ? 1 : __builtin_exp2f(sink - maximum);
    run.sum[lane] = sink == kMinusInfinity ? 0 : weight;
  }
}

// The largest of `keys` rows of s, in kLanes lanes.
inline Vec largest(const float* s, std::int64_t keys, Vec factor) {
  constexpr int kChains = 4;
  Vec most[kChains];
  ATTN_UNROLL for (int i = 0; i < kChains; ++i) most[i] = splat(kMinusInfinity);
  const std::int64_t whole = keys / kChains * kChains;
  for (std::int64_t j = 0; j < whole; j += kChains) {
    ATTN_UNROLL for (int i = 0; i < kChains; ++i) most[i] = max(load(s + (j + i) * kColumns), most[i]);
  }
  for (std::int64_t j = whole; j < keys; ++j) most[0] = max(load(s + j * kColumns), most[0]);
  return max(max(most[0], most[1]), max(most[2], most[3])) * factor;
}

// s (keys, kColumns) · factor becomes weights 2^(s · factor - maximum); the sum and the context of `rows` rows follow
// the maximum's rise. The maximum rises only when it must by more than 8: the weights stay
// below 2^8, and the context is rarely scaled (Zadouri et al. 2026). Each lane decides for itself, and a lane
// that does not rise is scaled by exactly 1: no row depends on its neighbours.
inline void softmax_tile(float* s, std::int64_t keys, float factor, const Running& run, std::int64_t rows) {
  const Vec scale = splat(factor);
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec before = load(run.maximum + w), most = largest(s + w, keys, scale);
    const Vec after = most > before + splat(8.f) ? most : before;
    // While every key is masked the maximum is -inf; subtracting 0 instead gives weights of 0, not NaN.
    const Vec base = after == splat(kMinusInfinity) ? splat(0.f) : after;
    Vec sum = splat(0.f);
    for (std::int64_t j = 0; j < keys; ++j) {
      float* at = s + j * kColumns + w;
      const Vec weight = exp2_nonpositive(load(at) * scale - base);
      sum += weight;
      store(at, weight);
    }
    const Vec shrink = exp2_nonpositive(before - base);
    store(run.maximum + w, after);
    store(run.sum + w, load(run.sum + w) * shrink + sum);
    if (run.fresh || !any(shrink != splat(1.f))) continue;
    for (std::int64_t c = 0; c < rows; ++c)
      store(run.context + c * kColumns + w, load(run.context + c * kColumns + w) * shrink);
  }
}

// Clears the context before its first sums, so that it is in L1 while they are added; at the end, if there were none.
inline void begin_context(Running& run, std::int64_t rows) {
  if (!run.fresh) return;
  for (std::int64_t i = 0; i < rows * kColumns; i += kLanes) store(run.context + i, splat(0.f));
  run.fresh = false;
}

inline float log_sum_exp(float maximum, float sum) { return sum == 0 ? kMinusInfinity : natural_sum(maximum, sum); }

// Writes a row's log-sum-exp, and returns it.
inline float write_log_sum_exp(const Problem& p, const ForwardResult& result, const Span& span, const Query& at,
                               float maximum, float sum) {
  const std::int64_t place = (span.batch * p.hq + at.head) * result.lse_head + at.token;
  const float lse = log_sum_exp(maximum, sum);
  result.lse[place] = lse;
  if (result.lse_rest) result.lse_rest[place] = rest_of_natural_sum(maximum, sum, lse);
  return lse;
}

// Whether a row's log-sum-exp is as it should be, for all that one row tells: -inf where there is nothing to see.
inline bool is_sound(const Problem& p, const Query& at, float lse) {
  if (lse != kMinusInfinity) return lse - lse == 0;
  return p.first[at.token] >= p.last[at.token] && !(p.sinks && p.sinks[at.head] != kMinusInfinity);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
