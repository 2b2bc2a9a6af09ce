// Few queries against many keys: a cache is read once, at the speed of memory. The keys are cut into chunks of a
// fixed size, a task each, whose partial results are merged in order (Dao et al. 2023, "Flash-Decoding"): neither
// the threads nor the batch change a bit.
#pragma once

#include "kernels/unit/carver.hpp"
#include "kernels/unit/dropout.hpp"
#include "kernels/unit/scores.hpp"
#include "kernels/unit/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kDecodeQueries = 4;  // most queries of a head; more fill the lanes of the other kernel
constexpr std::int64_t kChunkKeys = 512;    // keys of a task
constexpr std::int64_t kStepKeys = 32;      // keys widened at once: they stay in L1

inline bool decodes(const Problem& p) { return p.hkv > 0 && p.tq > 0 && p.tq <= kDecodeQueries; }

inline std::int64_t pad_lanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

inline std::int64_t chunks(const Problem& p) { return p.tk == 0 ? 1 : (p.tk + kChunkKeys - 1) / kChunkKeys; }

// A chunk's result for a query: the largest score, Σ 2^(s - largest), and the context (dv, padded) in that scale.
inline std::int64_t partial_floats(const Problem& p) { return pad_lanes(2) + pad_lanes(p.dv); }

inline std::size_t decode_shared(const Problem& p) {
  return static_cast<std::size_t>(p.batch * p.hkv * chunks(p) * rows_per_key_head(p) * partial_floats(p)) *
         sizeof(float);
}

inline std::int64_t decode_tasks(const Problem& p, int phase) { return p.batch * p.hkv * (phase == 0 ? chunks(p) : 1); }

inline float* partial(const Problem& p, void* shared, std::int64_t task, std::int64_t r) {
  return static_cast<float*>(shared) + (task * rows_per_key_head(p) + r) * partial_floats(p);
}

struct DecodeScratch {
  float *queries, *keys, *values, *s;
  std::int64_t d, dv;  // padded to whole vectors

  DecodeScratch(const Problem& p, Carver& take) : d(pad_lanes(p.d)), dv(pad_lanes(p.dv)) {
    queries = take(rows_per_key_head(p) * d);
    keys = take(kStepKeys * d);
    values = take(kStepKeys * dv);
    s = take(rows_per_key_head(p) * kStepKeys);
  }
};

inline std::size_t decode_scratch(const Problem& p) {
  Carver count{nullptr};
  const DecodeScratch parts(p, count);
  return static_cast<std::size_t>(count.used) * sizeof(float);
}

// kStepKeys rows from `first` on, of whole vectors: in place, or as float32 in `buffer`, zeros past `width`; what
// the rows past `count` hold does not matter.
inline Block rows_of(const Problem& p, const Rows& rows, std::int64_t width, const Span& span, std::int64_t first,
                     std::int64_t count, float* buffer) {
  const std::int64_t padded = pad_lanes(width);
  if (p.element == Element::f32 && padded == width && count == kStepKeys) {
    return block_of(p, rows, width, span, first, count, buffer);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    widen(p.element, row(rows, p.element, span.batch, span.key_head, first + j), buffer + j * padded, width);
    for (std::int64_t c = width; c < padded; ++c) buffer[j * padded + c] = 0;
  }
  return {buffer, padded};
}

// s[j] = q · k[j] for kLanes keys: as many sums at once, which a transposition brings into one vector.
inline void score_keys(const float* q, std::int64_t width, const Block& k, float* s) {
  Vec sums[kLanes];
  ATTN_UNROLL for (int j = 0; j < kLanes; ++j) sums[j] = splat(0.f);
  for (std::int64_t c = 0; c < width; c += kLanes) {
    const Vec left = load(q + c);
    ATTN_UNROLL for (int j = 0; j < kLanes; ++j) sums[j] = left * load(k.data + j * k.step + c) + sums[j];
  }
  transpose(sums);
  ATTN_UNROLL for (int half = kLanes / 2; half > 0; half /= 2) {
    ATTN_UNROLL for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  store(s, sums[0]);
}

// context[i] += Σ_j w[i][j] · v[j] for Count queries and Width vectors of their contexts.
template <int Count, int Width>
inline void add_values(const float* w, const Block& v, std::int64_t keys, float* context, std::int64_t context_step) {
  Vec sums[Count][Width];
  ATTN_UNROLL for (int i = 0; i < Count; ++i) {
    ATTN_UNROLL for (int c = 0; c < Width; ++c) sums[i][c] = load(context + i * context_step + c * kLanes);
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    ATTN_UNROLL for (int c = 0; c < Width; ++c) {
      const Vec value = load(v.data + j * v.step + c * kLanes);
      ATTN_UNROLL for (int i = 0; i < Count; ++i) sums[i][c] = splat(w[i * kStepKeys + j]) * value + sums[i][c];
    }
  }
  ATTN_UNROLL for (int i = 0; i < Count; ++i) {
    ATTN_UNROLL for (int c = 0; c < Width; ++c) store(context + i * context_step + c * kLanes, sums[i][c]);
  }
}

// The whole width, in pieces that keep eight sums in flight.
template <int Count>
inline void add_all_values(const float* w, const Block& v, std::int64_t width, std::int64_t keys, float* context,
                           std::int64_t context_step) {
  constexpr int kWide = 8 / Count;
  std::int64_t c = 0;
  for (; c + kWide * kLanes <= width; c += kWide * kLanes) {
    add_values<Count, kWide>(w, {v.data + c, v.step}, keys, context + c, context_step);
  }
  for (; c < width; c += kLanes) add_values<Count, 1>(w, {v.data + c, v.step}, keys, context + c, context_step);
}

// Cell (query, key) of a grid, key by key.
template <class T, class F>
inline void for_each_key(const Grid<T>& grid, const Span& span, const Query& at, std::int64_t first, std::int64_t keys,
                         F&& f) {
  const T* cells = grid.data + span.batch * grid.batch + at.head * grid.head + at.token * grid.query;
  for (std::int64_t j = 0; j < keys; ++j) f(j, cells[(first + j) * grid.key]);
}

// A lane draws four keys at once.
inline void decode_dropout(const Problem& p, const Span& span, const Query& at, std::int64_t first, std::int64_t keys,
                           float* s) {
  if (p.dropout_keep.data) {
    for_each_key(p.dropout_keep, span, at, first, keys,
                 [&](std::int64_t j, bool keep) { s[j] = keep ? s[j] * p.dropout_factor : 0; });
    return;
  }
  for (std::int64_t quad = 0; quad < kStepKeys / 4; quad += kLanes) {
    VecU words[4] = {VecU{}, VecU{} + static_cast<std::uint32_t>(at.token),
                     VecU{} + static_cast<std::uint32_t>(at.head), VecU{} + static_cast<std::uint32_t>(span.batch)};
    std::uint32_t quads[kLanes];
    for (int i = 0; i < kLanes; ++i) quads[i] = static_cast<std::uint32_t>(first / 4 + quad + i);
    __builtin_memcpy(&words[0], quads, sizeof quads);
    philox(words, p.dropout_key);
    for (std::int64_t j = 0; j < 4 * kLanes && quad * 4 + j < kStepKeys; ++j) {
      s[quad * 4 + j] *= words[j % 4][j / 4] >= p.dropout_threshold ? p.dropout_factor : 0;
    }
  }
}

// One query's scores for keys first … first + keys - 1 become weights; returns by how much its context must shrink.
inline float decode_softmax(const Problem& p, const Span& span, std::int64_t r, std::int64_t first, std::int64_t keys,
                            float* s, float* state) {
  const Query at = query(p, span, r);
  const std::int64_t place = span.batch * p.interval_batch + at.token;
  for (std::int64_t j = keys; j < kStepKeys; ++j) s[j] = kMinusInfinity;
  if (p.softcap > 0) {
    const Vec cap = splat(p.softcap * kLog2e);
    for (std::int64_t j = 0; j < keys; j += kLanes) store(s + j, cap * tanh(load(s + j)));
    for (std::int64_t j = keys; j < kStepKeys; ++j) s[j] = kMinusInfinity;
  }
  if (p.bias.data) for_each_key(p.bias, span, at, first, keys, [s](std::int64_t j, float b) { s[j] += b * kLog2e; });
  if (p.alibi_slopes) {
    const float slope = p.alibi_slopes[at.head] * kLog2e;
    for (std::int64_t j = 0; j < keys; ++j) {
      s[j] -= slope * __builtin_fabsf(static_cast<float>(first + j) - static_cast<float>(p.centre[place]));
    }
  }
  if (p.keep.data) {
    for_each_key(p.keep, span, at, first, keys,
                 [s](std::int64_t j, bool keep) { s[j] = keep ? s[j] : kMinusInfinity; });
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    if (first + j < p.first[place] || first + j >= p.last[place]) s[j] = kMinusInfinity;
  }
  Vec most = load(s);
  for (std::int64_t j = kLanes; j < kStepKeys; j += kLanes) most = max(load(s + j), most);
  float largest = state[0];
  for (int i = 0; i < kLanes; ++i) largest = most[i] > largest || most[i] != most[i] ? most[i] : largest;
  const Vec base = splat(largest == kMinusInfinity ? 0 : largest);
  Vec sum = splat(0.f);
  for (std::int64_t j = 0; j < kStepKeys; j += kLanes) {
    const Vec weight = exp2_nonpositive(load(s + j) - base);
    sum += weight;
    store(s + j, weight);
  }
  const float shrink = exp2_nonpositive(splat(state[0]) - base)[0];
  state[0] = largest;
  state[1] = state[1] * shrink + sum_lanes(sum);
  if (drops(p)) decode_dropout(p, span, at, first, keys, s);
  return shrink;
}

// Calls f with a compile-time count for each run of at most four queries.
template <class F>
inline void by_fours(std::int64_t rows, F&& f) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) f.template operator()<4>(r);
  for (; r < rows; ++r) f.template operator()<1>(r);
}

inline void decode_chunk(const Problem& p, std::int64_t task, void* shared, void* scratch) {
  Carver take{static_cast<float*>(scratch)};
  const DecodeScratch mem(p, take);
  const std::int64_t rows = rows_per_key_head(p), head = task / chunks(p), begin = task % chunks(p) * kChunkKeys;
  const std::int64_t end = begin + kChunkKeys < p.tk ? begin + kChunkKeys : p.tk;
  const Span span{head / p.hkv, head % p.hkv, 0, rows};

  const auto context = [&](std::int64_t r) { return partial(p, shared, task, r) + pad_lanes(2); };
  for (std::int64_t r = 0; r < rows; ++r) {
    float* state = partial(p, shared, task, r);
    // A sink is a score met before any key: by the first chunk alone.
    const bool sink = p.sinks && begin == 0;
    state[0] = sink ? p.sinks[query(p, span, r).head] * kLog2e : kMinusInfinity;
    state[1] = state[0] == kMinusInfinity ? 0 : 1;
    for (std::int64_t c = 0; c < mem.dv; ++c) context(r)[c] = 0;
    const Query at = query(p, span, r);
    float* line = mem.queries + r * mem.d;
    widen(p.element, row(p.q, p.element, span.batch, at.head, at.token), line, p.d);
    for (std::int64_t c = 0; c < mem.d; ++c) line[c] = c < p.d ? line[c] * query_factor(p) : 0;
  }

  for (std::int64_t first = begin; first < end; first += kStepKeys) {
    const std::int64_t keys = end - first < kStepKeys ? end - first : kStepKeys;
    const Block k = rows_of(p, p.k, p.d, span, first, keys, mem.keys);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < keys; j += kLanes) {
        score_keys(mem.queries + r * mem.d, mem.d, {k.data + j * k.step, k.step}, mem.s + r * kStepKeys + j);
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const float shrink = decode_softmax(p, span, r, first, keys, mem.s + r * kStepKeys, partial(p, shared, task, r));
      if (shrink == 1) continue;
      for (std::int64_t c = 0; c < mem.dv; c += kLanes) store(context(r) + c, load(context(r) + c) * splat(shrink));
    }
    const Block v = rows_of(p, p.v, p.dv, span, first, keys, mem.values);
    by_fours(rows, [&]<int Count>(std::int64_t r) {
      add_all_values<Count>(mem.s + r * kStepKeys, v, mem.dv, keys, context(r), partial_floats(p));
    });
  }
}

// Merges the chunks of a key head, in order, into the first one's place, and writes the rows.
inline void decode_merge(const Problem& p, const ForwardResult& result, std::int64_t task, void* shared) {
  const Span span{task / p.hkv, task % p.hkv, 0, rows_per_key_head(p)};
  for (std::int64_t r = 0; r < span.rows; ++r) {
    float* sum = partial(p, shared, task * chunks(p), r);
    float* context = sum + pad_lanes(2);
    for (std::int64_t i = 1; i < chunks(p); ++i) {
      const float* part = partial(p, shared, task * chunks(p) + i, r);
      const float most = part[0] > sum[0] || part[0] != part[0] ? part[0] : sum[0];
      const float base = most == kMinusInfinity ? 0 : most;
      const float keep = exp2_nonpositive(splat(sum[0] - base))[0], add = exp2_nonpositive(splat(part[0] - base))[0];
      sum[0] = most, sum[1] = sum[1] * keep + part[1] * add;
      for (std::int64_t c = 0; c < p.dv; ++c) context[c] = context[c] * keep + part[pad_lanes(2) + c] * add;
    }
    const float inverse = sum[0] == kMinusInfinity ? 0 : 1 / sum[1];
    float zero = 0;  // NaN once a context is not finite
    for (std::int64_t c = 0; c < p.dv; ++c) {
      context[c] *= inverse;
      zero += context[c] * 0;
    }
    const Query at = query(p, span, r);
    narrow(p.element, context, row(result.output, p.element, span.batch, at.head, at.token), p.dv);
    result.lse[(span.batch * p.hq + at.head) * p.tq + at.token] =
        sum[0] == kMinusInfinity ? kMinusInfinity : (sum[0] + __builtin_log2f(sum[1])) * kLn2 + zero;
  }
}

inline void decode(const Problem& p, const ForwardResult& result, int phase, std::int64_t task, void* shared,
                   void* scratch) {
  phase == 0 ? decode_chunk(p, task, shared, scratch) : decode_merge(p, result, task, shared);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
