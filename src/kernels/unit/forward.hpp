// Fused forward: online softmax over blocks of keys (Milakov and Gimelshein 2018; Dao et al. 2022).
#pragma once

#include "kernels/unit/scores.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// A group's running state, each (…, kColumns).
struct Running {
  float *maximum, *sum;  // 1 row each: the largest score so far, and Σ 2^(s - maximum)
  float* context;        // dv rows: Σ 2^(s - maximum) · v
};

inline std::int64_t round_up(std::int64_t n) { return (n + 15) / 16 * 16; }

// Scratch of a task, carved from one allocation; every part a multiple of 64 bytes.
struct ForwardScratch {
  float *packed_q, *context, *maximum, *sum, *s, *keys, *values, *line;
  std::int64_t floats;

  ForwardScratch(const Problem& p, float* base) {
    const bool widens = p.element != Element::f32;
    std::int64_t used = 0;
    const auto take = [&](std::int64_t n) {
      float* part = base + used;
      used += round_up(n);
      return part;
    };
    packed_q = take(kGroups * p.d * kColumns);
    context = take(kGroups * p.dv * kColumns);
    maximum = take(kGroups * kColumns);
    sum = take(kGroups * kColumns);
    s = take(kKeys * kColumns);
    keys = take(widens ? kKeys * p.d : 0);
    values = take(widens ? kKeys * p.dv : 0);
    line = take(p.d > p.dv ? p.d : p.dv);
    floats = used;
  }
};

// s becomes 2^(s - maximum); the running sum and context follow the maximum's rise.
inline void softmax_tile(float* s, std::int64_t keys, const Running& run, std::int64_t dv) {
  for (int w = 0; w < kColumns; w += kLanes) {
    const Vec before = load(run.maximum + w);
    Vec most = before;
    for (std::int64_t j = 0; j < keys; ++j) most = max(load(s + j * kColumns + w), most);
    // While every key is masked the maximum is -inf; subtracting 0 instead gives weights of 0, not NaN.
    const Vec base = most == splat(kMinusInfinity) ? splat(0.f) : most;
    Vec sum = splat(0.f);
    for (std::int64_t j = 0; j < keys; ++j) {
      const Vec weight = exp2_nonpositive(load(s + j * kColumns + w) - base);
      sum += weight;
      store(s + j * kColumns + w, weight);
    }
    const Vec shrink = exp2_nonpositive(before - base);
    store(run.maximum + w, most);
    store(run.sum + w, load(run.sum + w) * shrink + sum);
    if (!any(shrink != splat(1.f))) continue;
    for (std::int64_t c = 0; c < dv; ++c)
      store(run.context + c * kColumns + w, load(run.context + c * kColumns + w) * shrink);
  }
}

// Writes a group's rows; the log-sum-exp of a row that is not finite becomes NaN, for the caller to see.
inline void write_group(const Problem& p, const ForwardResult& result, const Span& span, int group, const Running& run,
                        float* line) {
  for (int lane = 0; lane < kColumns && group * kColumns + lane < span.rows; ++lane) {
    const Query at = query(p, span, group * kColumns + lane);
    const float sum = run.sum[lane], most = run.maximum[lane];
    const float inverse = most == kMinusInfinity ? 0 : 1 / sum;
    float zero = 0;  // NaN once a context is not finite
    for (std::int64_t c = 0; c < p.dv; ++c) {
      line[c] = run.context[c * kColumns + lane] * inverse;
      zero += line[c] * 0;
    }
    narrow(p.element, line, row(result.output, p.element, span.batch, at.head, at.token), p.dv);
    result.lse[(span.batch * p.hq + at.head) * p.tq + at.token] =
        most == kMinusInfinity ? kMinusInfinity : (most + __builtin_log2f(sum)) * kLn2 + zero;
  }
}

inline void forward(const Problem& p, const ForwardResult& result, std::int64_t task, void* scratch) {
  const ForwardScratch mem(p, static_cast<float*>(scratch));
  const Span span = locate(p, task);
  const int groups = static_cast<int>((span.rows + kColumns - 1) / kColumns);

  Running run[kGroups];
  Interval seen[kGroups];
  std::int64_t begin = p.tk, end = 0;
  for (int g = 0; g < groups; ++g) {
    run[g] = {mem.maximum + g * kColumns, mem.sum + g * kColumns, mem.context + g * p.dv * kColumns};
    for (int lane = 0; lane < kColumns; ++lane) run[g].maximum[lane] = kMinusInfinity, run[g].sum[lane] = 0;
    for (std::int64_t i = 0; i < p.dv * kColumns; ++i) run[g].context[i] = 0;
    seen[g] = interval(p, span, g);
    if (seen[g].any_first < begin) begin = seen[g].any_first;
    if (seen[g].any_last > end) end = seen[g].any_last;
    pack_lanes(p, p.q, p.d, span, g, query_factor(p), mem.line, mem.packed_q + g * p.d * kColumns);
  }

  for (std::int64_t first = begin / kKeys * kKeys; first < end; first += kKeys) {
    const std::int64_t count = p.tk - first < kKeys ? p.tk - first : kKeys;
    const Block k = block_of(p, p.k, p.d, span, first, count, mem.keys);
    const Block v = block_of(p, p.v, p.dv, span, first, count, mem.values);
    for (int g = 0; g < groups; ++g) {
      const std::int64_t from = seen[g].any_first > first ? seen[g].any_first : first;
      const std::int64_t to = seen[g].any_last < first + count ? seen[g].any_last : first + count;
      if (from >= to) continue;
      score_tile(p, span, g, seen[g], mem.packed_q + g * p.d * kColumns, k.data + (from - first) * k.step, k.step, from,
                 to - from, mem.s);
      softmax_tile(mem.s, to - from, run[g], p.dv);
      if (p.dropout_keep.data) {
        float* s = mem.s;
        for_each_cell(p, p.dropout_keep, span, g, from, to - from,
                      [&](std::int64_t at, bool keep) { s[at] = keep ? s[at] * p.dropout_factor : 0; });
      }
      // contextᵀ (dv, queries) += vᵀ · weights
      panel<true>(p.dv, v.data + (from - first) * v.step, 1, v.step, mem.s, kColumns, run[g].context, kColumns,
                  to - from);
    }
  }
  for (int g = 0; g < groups; ++g) write_group(p, result, span, g, run[g], mem.line);
}

inline std::size_t forward_scratch(const Problem& p) {
  return static_cast<std::size_t>(ForwardScratch(p, nullptr).floats) * sizeof(float);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
